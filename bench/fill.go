package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// FillOptions configure a fill.
type FillOptions struct {
	Clients int          // number of concurrent writers; 16 if zero
	Batch   int          // deployments created together; 500 if zero
	Report  func(string) // receives the progress, if not nil
}

// Filled is the result of [Fill].
type Filled struct {
	Root    tko.DeploymentID // the ancestor of all other deployments
	Sites   int              // registered by this call
	Created int              // deployments created by this call
	Took    time.Duration    // to create them
}

// conditionFilled is set on the deployments of topologies all of whose children
// exist. Its message contains their number.
const conditionFilled = "Filled"

// Fill writes a fleet to a server. It continues where an earlier run ended, and does
// nothing if the fleet is complete. To enlarge a fleet, fill a larger one with the same
// seed.
func Fill(ctx context.Context, c *client.Client, f Fleet, o FillOptions) (Filled, error) {
	switch {
	case f.Sites < 1:
		return Filled{}, tko.Errorf(tko.ErrInvalid, "a fleet of %d sites has no place for deployments: set at least one site", f.Sites)
	case f.Deployments < 0:
		return Filled{}, tko.Errorf(tko.ErrInvalid, "%d deployments: set zero or more", f.Deployments)
	}
	if o.Clients <= 0 {
		o.Clients = 16
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	return (&filler{Fleet: f, FillOptions: o, client: c, known: map[tko.DeploymentID]map[string]tko.DeploymentID{}}).run(ctx)
}

type filler struct {
	Fleet
	FillOptions
	client *client.Client

	oneByOne atomic.Bool // the server doesn't create children in batches
	lock     sync.Mutex
	known    map[tko.DeploymentID]map[string]tko.DeploymentID // children by origin, if oneByOne
	created  atomic.Int64
}

func (f *filler) run(ctx context.Context) (Filled, error) {
	root, done, err := f.root(ctx)
	filled := Filled{Root: root}
	if err != nil || done == f.fullMark() {
		return filled, err
	}
	if filled.Sites, err = f.sites(ctx); err != nil {
		return filled, fmt.Errorf("sites: %w", err)
	}
	began := time.Now()
	err = f.deployments(ctx, root)
	filled.Created, filled.Took = int(f.created.Load()), time.Since(began)
	if err != nil {
		return filled, fmt.Errorf("deployments: %w", err)
	}
	return filled, f.mark(ctx, root, f.fullMark())
}

// fullMark is the root's mark when the fleet is complete.
func (f *filler) fullMark() string {
	return fmt.Sprintf("%d deployments at %d sites", f.Deployments, f.Sites)
}

// root finds or creates the fleet's network, with all templates, and returns its mark.
func (f *filler) root(ctx context.Context) (id tko.DeploymentID, mark string, err error) {
	template := f.topology(levelNetwork)
	for d, err := range f.client.Deployments(ctx, tko.DeploymentSelect{Templates: []string{string(template)}}, tko.ListOptions{}) {
		if err != nil {
			return "", "", err
		}
		return d.ID, markOf(d), nil
	}
	templates, err := f.Templates()
	if err != nil {
		return "", "", err
	}
	if _, err := parallel(ctx, f.Clients, len(templates), func(ctx context.Context, i int) error {
		_, err := f.client.RegisterTemplate(ctx, templates[i])
		return err
	}); err != nil {
		return "", "", err
	}
	id, err = f.client.CreateDeployment(ctx, tko.NewDeployment{Template: template, Prepared: true, Approved: true})
	return id, "", err
}

func markOf(d tko.Deployment) string {
	for _, c := range d.Stamp.Conditions {
		if c.Type == conditionFilled && c.Status == tko.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// mark records that a deployment is filled. If the server has no conditions, the next
// run checks again.
func (f *filler) mark(ctx context.Context, id tko.DeploymentID, what string) error {
	err := f.client.SetConditions(ctx, tko.KindDeployment, string(id), []tko.Condition{{
		Type: conditionFilled, Status: tko.ConditionTrue, Reason: "Filled", Message: what,
	}})
	if unimplemented(err) {
		return nil
	}
	return err
}

// sites registers the sites from the last to the first, unless the last and the first
// exist.
func (f *filler) sites(ctx context.Context) (int, error) {
	first, last := f.Site(0), f.Site(f.Sites-1)
	there := 0
	for _, site := range []tko.Site{first, last} {
		switch _, err := f.client.Site(ctx, site.ID, 0); {
		case err == nil:
			there++
		case !errors.Is(err, tko.ErrNotFound):
			return 0, err
		}
	}
	if there == 2 {
		return 0, nil
	}
	n := f.Sites
	report := f.progress("sites", n)
	// The first site is registered after all others.
	_, err := parallel(ctx, f.Clients, n-1, func(ctx context.Context, i int) error {
		_, err := f.client.RegisterSite(ctx, f.Site(n-1-i))
		report(1)
		return err
	})
	if err != nil {
		return 0, err
	}
	_, err = f.client.RegisterSite(ctx, first)
	return n, err
}

// A job is a batch of deployments.
type job struct {
	parent tko.DeploymentID
	wave   *unfinished
	leaves []int
}

// An unfinished is a wave with batches left.
type unfinished struct {
	remaining atomic.Int64
	total     int
}

func (f *filler) deployments(ctx context.Context, root tko.DeploymentID) error {
	waves := f.waves()
	parents, err := f.parents(ctx, root, waves)
	if err != nil {
		return err
	}
	done, err := f.marks(ctx)
	if err != nil {
		return err
	}
	report := f.progress("deployments", f.Deployments)
	var jobs []job
	for i, w := range waves {
		if len(w.leaves) == 0 || done[parents[i]] == children(len(w.leaves)) {
			report(len(w.leaves))
			continue
		}
		u := &unfinished{total: len(w.leaves)}
		for from := 0; from < len(w.leaves); from += f.Batch {
			jobs = append(jobs, job{parents[i], u, w.leaves[from:min(from+f.Batch, len(w.leaves))]})
			u.remaining.Add(1)
		}
	}
	_, err = parallel(ctx, min(f.Clients, 4), len(jobs), func(ctx context.Context, i int) error {
		j := jobs[i]
		batch := make([]tko.NewChild, len(j.leaves))
		for n, number := range j.leaves {
			batch[n] = f.child(number)
		}
		if _, err := f.create(ctx, j.parent, batch, f.merge(j.leaves[0])); err != nil {
			return err
		}
		report(len(batch))
		if j.wave.remaining.Add(-1) > 0 {
			return nil
		}
		return f.mark(ctx, j.parent, children(j.wave.total))
	})
	return err
}

func children(n int) string { return fmt.Sprintf("%d children", n) }

// parents creates the deployments of the waves, below those of their regions.
func (f *filler) parents(ctx context.Context, root tko.DeploymentID, waves []wave) ([]tko.DeploymentID, error) {
	prepared := krm.Package(nil).WithDeployment("", "", true, true)
	names := make([]tko.NewChild, regions)
	for n := range names {
		names[n] = tko.NewChild{Origin: fmt.Sprintf("region-%02d", n), Template: f.topology(levelRegion)}
	}
	regional, err := f.create(ctx, root, names, prepared)
	if err != nil {
		return nil, err
	}
	parents := make([]tko.DeploymentID, len(waves))
	for i, w := range waves {
		ids, err := f.create(ctx, regional[w.region], []tko.NewChild{
			{Origin: fmt.Sprintf("wave-%03d", w.number), Template: f.topology(levelWave)},
		}, prepared)
		if err != nil {
			return nil, err
		}
		parents[i] = ids[0]
	}
	return parents, nil
}

// marks returns the marks of all waves.
func (f *filler) marks(ctx context.Context) (map[tko.DeploymentID]string, error) {
	marks := map[tko.DeploymentID]string{}
	for d, err := range f.client.Deployments(ctx, tko.DeploymentSelect{Templates: []string{string(f.topology(levelWave))}}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		marks[d.ID] = markOf(d)
	}
	return marks, nil
}

// create creates children, each once: in batches, or one by one if the server has no
// batches.
func (f *filler) create(ctx context.Context, parent tko.DeploymentID, batch []tko.NewChild, merge krm.Package) ([]tko.DeploymentID, error) {
	if !f.oneByOne.Load() {
		ids, created, err := f.client.CreateChildren(tko.WithConfirmation(ctx, len(batch)), tko.NewChildren{Parent: parent, Merge: merge, Children: batch})
		if !unimplemented(err) {
			f.created.Add(int64(created))
			return ids, err
		}
		f.oneByOne.Store(true)
	}
	known, err := f.childrenOf(ctx, parent)
	if err != nil {
		return nil, err
	}
	ids := make([]tko.DeploymentID, len(batch))
	_, err = parallel(ctx, f.Clients, len(batch), func(ctx context.Context, i int) (err error) {
		child := batch[i]
		f.lock.Lock()
		id, ok := known[child.Origin]
		f.lock.Unlock()
		if !ok {
			// Not cancelled: a cancelled call may succeed after the next run has listed.
			if id, err = f.client.CreateDeployment(context.WithoutCancel(ctx), tko.NewDeployment{
				Parent: parent, Template: child.Template, Site: child.Site, Merge: merge, Metadata: map[string]string{"origin": child.Origin},
			}); err != nil {
				return err
			}
			f.created.Add(1)
			f.lock.Lock()
			known[child.Origin] = id
			f.lock.Unlock()
		}
		ids[i] = id
		return nil
	})
	return ids, err
}

// childrenOf returns a deployment's children by the origin in their metadata.
func (f *filler) childrenOf(ctx context.Context, parent tko.DeploymentID) (map[string]tko.DeploymentID, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if known := f.known[parent]; known != nil {
		return known, nil
	}
	known := map[string]tko.DeploymentID{}
	for d, err := range f.client.Deployments(ctx, tko.DeploymentSelect{Parent: parent}, tko.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		known[d.Metadata["origin"]] = d.ID
	}
	f.known[parent] = known
	return known, nil
}

// progress returns a function to call when more of n are done. It reports the progress
// every few seconds, and at the end.
func (f *filler) progress(what string, n int) func(more int) {
	const pause = 5 * time.Second
	var lock sync.Mutex
	done, began := 0, time.Now()
	next := began.Add(pause)
	return func(more int) {
		lock.Lock()
		defer lock.Unlock()
		done += more
		now := time.Now()
		if now.Before(next) && done < n || more == 0 {
			return
		}
		next = now.Add(pause)
		rate := float64(done) / max(now.Sub(began).Seconds(), 1e-3)
		left := time.Duration(float64(n-done) / rate * float64(time.Second)).Round(time.Second)
		f.Report(fmt.Sprintf("%s: %d of %d, %.0f/s, %s left", what, done, n, rate, left))
	}
}

// unimplemented reports whether the server lacks a method.
func unimplemented(err error) bool { return err != nil && status.Code(err) == codes.Unimplemented }
