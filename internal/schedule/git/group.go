package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/trail"
)

const (
	maxGroup   = 256 // sites in one commit
	maxRetries = 20  // of a commit whose branch another writer moved

	patience    = 300 * time.Millisecond // without a further request, after which patient requests are committed
	maxPatience = 5 * time.Second        // of patient requests
)

// errAbandoned is the error of a batch whose worker was cancelled.
var errAbandoned = errors.New("abandoned")

// A request is a change of the branch for one site.
type request struct {
	site   tko.SiteID
	path   string
	wanted []rendered
	held   []tko.DeploymentID // their folders stay unchanged

	patient     bool                       // its commit waits a moment for further requests
	begin       func() error               // an error if nothing may begin at the site any more
	deployments []tko.Deployment           // of wanted
	recorded    map[tko.DeploymentID]int64 // revisions in the inventory of the tip
	listed      map[tko.DeploymentID]int64 // revisions in the inventory that the request leads to

	// The result, valid when done is closed.
	done    chan struct{}
	removed []tko.DeploymentID
	err     error
}

func (r *request) again() *request {
	return &request{site: r.site, path: r.path, wanted: r.wanted, patient: r.patient, begin: r.begin, deployments: r.deployments, held: r.held, done: make(chan struct{})}
}

type patientKey struct{}

// Patient returns a context in which the commit of a site waits a moment for those of other sites with the same branch, as
// long as they come.
func Patient(ctx context.Context) context.Context { return context.WithValue(ctx, patientKey{}, true) }

// A group is a branch with the requests that wait for it. The goroutine that holds
// the lock processes all waiting requests.
type group struct {
	target *Target
	spec   spec          // the path is meaningless
	lock   chan struct{} // holds an element while it is locked

	mu      sync.Mutex
	waiting []*request
}

// submit waits until the request is processed, by this caller or another one, and
// returns the removed deployments. The error is errAbandoned if the caller that
// processed it was cancelled.
func (g *group) submit(ctx context.Context, r *request) (_ []tko.DeploymentID, err error) {
	ctx, span := trail.Start(ctx, "git.commit")
	defer func() { trail.End(span, err) }()
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	g.mu.Unlock()
	for {
		select {
		case <-r.done:
			return r.removed, r.err
		case <-ctx.Done():
			g.forget(r)
			return nil, context.Cause(ctx)
		case g.lock <- struct{}{}:
		}
		g.await(ctx)
		if batch := g.take(); len(batch) > 0 {
			g.work(ctx, batch)
		}
		<-g.lock
	}
}

// await waits until no request has come for a moment, if those that wait are patient. The caller holds the lock.
func (g *group) await(ctx context.Context) {
	began, last, newest := time.Now(), 0, time.Now()
	for time.Since(began) < maxPatience {
		n, patient := g.count()
		if n > last {
			last, newest = n, time.Now()
		}
		if !patient || n >= maxGroup || time.Since(newest) >= patience || pause.For(ctx, patience/6) != nil {
			return
		}
	}
}

// count returns the number of waiting requests, and whether all are patient.
func (g *group) count() (n int, patient bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting), !slices.ContainsFunc(g.waiting, func(r *request) bool { return !r.patient })
}

func (g *group) forget(r *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(other *request) bool { return other == r })
}

func (g *group) take() []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(maxGroup, len(g.waiting))
	batch := slices.Clone(g.waiting[:n])
	g.waiting = slices.Clone(g.waiting[n:])
	return batch
}

// work processes a batch and completes its requests.
func (g *group) work(ctx context.Context, batch []*request) {
	err := g.commit(ctx, batch)
	for _, r := range batch {
		switch {
		case err != nil && ctx.Err() != nil:
			r.err = errAbandoned
		case err != nil:
			r.err = err
		}
		close(r.done)
	}
}

// commit commits a batch. The error concerns all requests; each request has its own
// error, too.
func (g *group) commit(ctx context.Context, batch []*request) error {
	batch = slices.DeleteFunc(slices.Clone(batch), func(r *request) bool { // credentials are for some sites
		r.err = g.target.permit(g.spec, r.site)
		return r.err != nil
	})
	if len(batch) == 0 {
		return nil
	}
	a, err := g.target.readAuth(ctx, g.spec, batch[0].site)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err := g.once(ctx, a, batch, attempt)
		if !errors.Is(err, errMoved) || attempt == maxRetries {
			return err
		}
	}
}

// open opens the repository. The caller holds the lock.
func (g *group) open(a gitclient.Auth, write bool) (repository, error) {
	if g.spec.Local != "" {
		return openLocal(g.spec.Local, g.spec.Branch, write)
	}
	return openRemote(cacheDir(g.target.options.Cache, g.spec), g.spec, a, g.target.options.Guard, g.target.options.Timeout)
}

// begun returns the requests that may go on. The others get the error of their fence.
func begun(batch []*request) []*request {
	return slices.DeleteFunc(slices.Clone(batch), func(r *request) bool {
		if r.err == nil || fence.Is(r.err) {
			r.err = r.begin()
		}
		return fence.Is(r.err)
	})
}

// once makes one attempt. If the clone can't be read at the first attempt, it is
// removed, and the error is errMoved.
func (g *group) once(ctx context.Context, a gitclient.Auth, batch []*request, attempt int) (err error) {
	repo, err := g.open(a, true)
	if err != nil {
		return err
	}
	defer repo.close()
	tip, err := repo.tip(ctx)
	if err != nil {
		return err
	}
	c := &change{objects: newStaging(repo.objects()), author: g.spec.Author}
	batch = begun(batch)
	commit, err := c.build(tip, batch)
	if err == nil && commit != tip {
		if len(begun(batch)) < len(batch) { // a site was stopped meanwhile: the commit is built without it
			return errMoved
		}
		err = repo.move(ctx, tip, commit, c.objects)
	}
	if errors.Is(err, errUnreadable) && g.spec.Local == "" && attempt == 0 {
		g.target.options.Log.WarnContext(ctx, "unreadable clone of a repository was removed", "url", g.spec.URL, "err", err)
		if err := os.RemoveAll(cacheDir(g.target.options.Cache, g.spec)); err != nil {
			return fmt.Errorf("removing the unreadable clone: %w", err)
		}
		return errMoved
	}
	if err == nil && commit != tip {
		g.target.options.Log.InfoContext(ctx, "committed", "url", g.spec.URL, "branch", g.spec.Branch, "commit", commit.String(), "sites", c.changed)
	}
	return err
}
