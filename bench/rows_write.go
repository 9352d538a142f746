package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	rowDisk        = "disk per deployment"
	rowRegister    = "register sites from a template with 5 metadata, role data alone"
	rowRegisterAll = "the same, all roles in one process"
)

func rowCreate(templates int) string {
	if templates == 1 {
		return "create deployments of one template"
	}
	return fmt.Sprintf("create deployments of %d templates", templates)
}

func rowModification(clients int) string {
	return fmt.Sprintf("modification, start and end, %d clients", clients)
}

func rowChildren(n int) string { return fmt.Sprintf("create %d children, in batches of 500", n) }

const rowLongestWait = "longest wait of a writer beside a mass delete: " // plain-words: ok, a name that results are compared by

func rowDeleteTemplate(n int) string {
	return fmt.Sprintf(rowLongestWait+"a template of %d deployments", n)
}

func rowDeleteParent(n int) string {
	return fmt.Sprintf(rowLongestWait+"a deployment with %d descendants", n)
}

func rowPurge(n int) string {
	return fmt.Sprintf(rowLongestWait+"a purge of %d sites", n)
}

// siteMetadata is the metadata of the template of registered sites.
var siteMetadata = map[string]string{"country": "de", "region": "region-07", "tier": "edge", "vendor": "globex", "channel": "stable"}

// register registers sites at a server of the role data, and then at one of all roles.
func (r *run) register(ctx context.Context) error {
	raw, err := r.raw.insertGroup(ctx, siteMetadata)
	if err != nil {
		return err
	}
	at := r.registerFresh
	if r.Fresh == nil {
		at = func(ctx context.Context, _ bool) (measurement, error) { return r.registerHere(ctx) }
	}
	alone, err := at(ctx, false)
	if err != nil {
		return err
	}
	r.add(rate(rowRegister, alone.perSecond(), raw, "raw transactions of one row with five metadata rows", 1).with(alone.String()))
	if r.Fresh == nil {
		return &notMeasuredError{"the benchmark can't start another server: it measures a running one"}
	}
	all, err := at(ctx, true)
	if err == nil {
		r.add(rate(rowRegisterAll, all.perSecond(), alone.perSecond(), "role data alone", 0.8).with(all.String()))
	}
	return err
}

// registerFresh registers sites at a new server with an empty database.
func (r *run) registerFresh(ctx context.Context, allRoles bool) (m measurement, err error) {
	err = r.withFresh(ctx, allRoles, func(fresh *run) error {
		m, err = fresh.registerHere(ctx)
		return err
	})
	return m, err
}

func (r *run) registerHere(ctx context.Context) (m measurement, err error) {
	own := r.scope("sites")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	template, err := own.template(ctx, "template", nil, siteMetadata)
	if err != nil {
		return m, err
	}
	if m, err = own.registerSites(ctx, r.Register, tko.Site{Template: template}); err != nil {
		return m, err
	}
	s, err := r.client.Site(ctx, own.site(0), 0)
	if err == nil && len(s.Metadata) < len(siteMetadata) {
		err = fmt.Errorf("the site %q has the metadata %v, want that of its template", s.ID, s.Metadata)
	}
	return m, err
}

// create creates deployments of one template, and then of many.
func (r *run) create(ctx context.Context) error {
	for _, templates := range []int{1, manyTemplates} {
		raw, err := r.raw.insert(ctx)
		if err != nil {
			return err
		}
		made, err := r.newDeployments(ctx, templates, r.Create)
		if err == nil {
			r.add(rate(rowCreate(templates), made.perSecond(), raw, rawInserts, 0.5).with(made.String()))
		}
		if err = errors.Join(err, made.purge(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// modify starts and ends modifications, each of a deployment of its own, that change one
// value of the package.
func (r *run) modify(ctx context.Context) error {
	made, err := r.newDeployments(ctx, 1, max(1, r.Create/2))
	if err == nil {
		var m measurement
		if m, err = r.modifyAll(ctx, made); err == nil {
			r.add(Row{What: rowModification(r.Clients), Value: m.perSecond(), Unit: PerSecond, Aim: 2000, Note: m.String()})
		}
	}
	return errors.Join(err, made.purge(ctx))
}

// modifyAll modifies each of some new deployments once, by all clients.
func (r *run) modifyAll(ctx context.Context, made deploymentsMade) (measurement, error) {
	return r.load(ctx, r.Clients, 0, len(made.ids), func(ctx context.Context, p peer, i int) error {
		return modifyOne(ctx, p.data, made.ids[i], marker, fmt.Sprintf("%0*d", len(marker), i))
	})
}

// modifyOne starts and ends a modification that replaces a text of the package by
// another one of the same length.
func modifyOne(ctx context.Context, data tkopb.DataClient, id tko.DeploymentID, old, text string) error {
	started, err := data.StartDeploymentModification(ctx, &tkopb.StartDeploymentModification{DeploymentId: string(id), PreferredPackageFormat: string(krm.CBOR)})
	if err != nil || !started.GetStarted() {
		return errors.Join(err, refused(started.GetNotStartedReason()))
	}
	if !bytes.Contains(started.GetPackage(), []byte(old)) {
		return errors.New("the package of the modification isn't the deployment's")
	}
	ended, err := data.EndDeploymentModification(ctx, &tkopb.EndDeploymentModification{
		ModificationToken: started.GetModificationToken(), PackageFormat: started.GetPackageFormat(),
		Package: bytes.ReplaceAll(started.GetPackage(), []byte(old), []byte(text)),
	})
	if err != nil || !ended.GetModified() {
		return errors.Join(err, refused(ended.GetNotModifiedReason()))
	}
	return nil
}

// refused returns a reason that a response has as an error, nil if it has none.
func refused(reason string) error {
	if reason == "" {
		return nil
	}
	return errors.New(reason)
}

// children creates the deployments for the deletion rows: children of one deployment,
// all of one template.
func (r *run) children(ctx context.Context) error {
	raw, err := r.raw.insert(ctx)
	if err != nil {
		return err
	}
	before, unknown := r.size(ctx)
	m, err := r.createDependents(ctx)
	if err != nil {
		return err
	}
	r.add(rate(rowChildren(r.Dependents), m.perSecond(), raw, rawInserts, 0))
	after, err := r.size(ctx)
	if err = errors.Join(unknown, err); err != nil {
		return err
	}
	r.add(Row{What: rowDisk, Value: float64(after-before) / float64(r.Dependents), Unit: Bytes, Aim: 1000, Note: "of a shared template, with its history and indexes"})
	return nil
}

// size returns the size of the server's state on disk, in bytes.
func (r *run) size(ctx context.Context) (int64, error) {
	switch {
	case r.database != nil:
		return r.database.number(ctx, `pg_database_size(current_database())`)
	case r.File == "":
		return 0, &notMeasuredError{"the server's database is not known: set -dsn"}
	}
	if err := r.restart(ctx); err != nil { // a restart writes everything to the file
		return 0, err
	}
	info, err := os.Stat(r.File)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (r *run) createDependents(ctx context.Context) (m measurement, err error) {
	p, err := decode(fmt.Sprintf(functionPackage, "upf", "acme", "v1.0.0"))
	if err != nil {
		return m, err
	}
	if r.shared, err = r.scope("template").template(ctx, "shared", p, map[string]string{"fleet": "dependents"}); err != nil {
		return m, err
	}
	parent, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Prepared: true, Approved: true})
	if err != nil {
		return m, err
	}
	const batch = 500
	merge := krm.Package(nil).WithDeployment("", "", true, true)
	end := r.begin(ctx)
	if _, err := parallel(ctx, 4, (r.Dependents+batch-1)/batch, func(ctx context.Context, b int) error {
		n := tko.NewChildren{Parent: parent, Merge: merge}
		for i := b * batch; i < min(r.Dependents, (b+1)*batch); i++ {
			n.Children = append(n.Children, tko.NewChild{Origin: strconv.Itoa(i), Template: r.shared, Site: r.fleet.Site(i % r.fleet.Sites).ID})
		}
		_, _, err := r.client.CreateChildren(tko.WithConfirmation(ctx, len(n.Children)), n)
		return err
	}); err != nil {
		return m, err
	}
	r.dependent = parent
	return end(r.Dependents), nil
}

// deletes deletes records on which many others depend, while clients write.
func (r *run) deletes(ctx context.Context) error {
	if r.dependent == "" {
		if _, err := r.createDependents(ctx); err != nil {
			return err
		}
	}
	if err := r.whileWriting(ctx, rowDeleteTemplate(r.Dependents), func() error {
		_, err := r.client.DeleteTemplate(tko.WithConfirmation(ctx, r.Dependents+1), r.shared)
		return err
	}); err != nil {
		return err
	}
	if err := r.whileWriting(ctx, rowDeleteParent(r.Dependents), func() error {
		_, err := r.client.DeleteDeployment(tko.WithConfirmation(ctx, r.Dependents+1), r.dependent)
		return err
	}); err != nil {
		return err
	}
	r.dependent = ""
	return nil
}

// whileWriting measures the longest wait of clients that write while do runs.
func (r *run) whileWriting(ctx context.Context, what string, do func() error) (err error) {
	const writers = 4
	own := r.scope("writers")
	defer func() { err = errors.Join(err, own.purge(ctx)) }()
	var watch stopwatch
	var writing, ready sync.WaitGroup
	ready.Add(writers)
	var failed error
	var once sync.Once
	done := make(chan struct{})
	for n := range writers {
		writing.Go(func() {
			for i := 0; ; i++ {
				s := tko.Site{ID: tko.SiteID(fmt.Sprintf("%s/%d/site-%06d", own.name, n, i))}
				began := time.Now()
				if _, err := r.client.RegisterSite(ctx, s); err != nil {
					once.Do(func() { failed = err })
				}
				if watch.add(time.Since(began)); i == 10 {
					ready.Done()
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	ready.Wait()
	began := time.Now()
	err = do()
	took := time.Since(began)
	close(done)
	writing.Wait()
	if err = errors.Join(err, failed); err == nil {
		r.add(duration(what, quantile(watch.took, 100), 100*time.Millisecond,
			fmt.Sprintf("p99 %s of %d writes; took %s", short(quantile(watch.took, 99)), len(watch.took), short(took))))
	}
	return err
}
