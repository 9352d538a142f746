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
	rowDisk         = "disk per deployment"
	rowRegister     = "register sites from a template with 5 metadata, role data alone"
	rowRegisterAll  = "the same, all roles in one process"
	aimRegisterAll  = 0.8 // of the role data alone
	aimCreate       = 0.5 // of raw single-row INSERTs
	aimModification = 2000
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

// name returns a prefix for the IDs of a row's records. It differs in every run, because
// writing the same record again changes nothing.
func (r *run) name(what string) string {
	return fmt.Sprintf("bench-%d/%s", time.Now().UnixNano(), what)
}

// siteMetadata is the metadata of the template of registered sites.
var siteMetadata = map[string]string{"country": "de", "region": "region-07", "tier": "edge", "vendor": "globex", "channel": "stable"}

// register registers sites at a server of the role data, and then at one of all roles.
func (r *run) register(ctx context.Context) error {
	raw, err := r.raw.insertGroup(ctx, siteMetadata)
	if err != nil {
		return err
	}
	if r.Fresh == nil {
		alone, spent, err := r.registerAt(ctx, r.Address)
		if err != nil {
			return err
		}
		r.addRegistered(alone, raw, spent)
		return &notMeasuredError{"the benchmark can't start another server: it measures a running one"}
	}
	alone, spent, err := r.registerFresh(ctx, false)
	if err != nil {
		return err
	}
	r.addRegistered(alone, raw, spent)
	all, spent, err := r.registerFresh(ctx, true)
	if err != nil {
		return err
	}
	row := rate(rowRegisterAll, all, alone, "role data alone")
	row.Aim = aimRegisterAll * alone
	row.also(spent.String())
	r.add(row)
	return nil
}

func (r *run) addRegistered(perSecond, raw float64, spent cost) {
	row := rate(rowRegister, perSecond, raw, "raw transactions of one row with five metadata rows")
	row.Aim = raw
	row.also(spent.String())
	r.add(row)
}

// registerFresh registers sites at a new server with an empty database.
func (r *run) registerFresh(ctx context.Context, allRoles bool) (perSecond float64, spent cost, err error) {
	address, pid, stop, err := r.Fresh(ctx, allRoles)
	if err != nil {
		return 0, cost{}, err
	}
	defer stop()
	fresh := *r
	fresh.Address, fresh.PID, fresh.client = address, pid, nil
	if err := fresh.dial(); err != nil {
		return 0, cost{}, err
	}
	defer func() { _ = fresh.client.Close() }()
	return fresh.registerAt(ctx, address)
}

func (r *run) registerAt(ctx context.Context, address string) (perSecond float64, spent cost, err error) {
	name := r.name("sites")
	l, err := newLoad(ctx, address, r.Clients)
	if err != nil {
		return 0, cost{}, err
	}
	defer l.close()
	template := tko.TemplateID(name + "/template")
	if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: template, Metadata: siteMetadata}); err != nil {
		return 0, cost{}, err
	}
	site := func(i int) tko.SiteID { return tko.SiteID(fmt.Sprintf("%s/site-%06d", name, i)) }
	before := r.cost(ctx)
	perSecond, err = l.run(ctx, r.Register, func(ctx context.Context, client, i int) error {
		_, err := l.clients[client].RegisterSite(ctx, tko.Site{ID: site(i), Template: template})
		return err
	})
	spent = r.since(ctx, before, r.Register)
	if err == nil {
		var s tko.Site
		if s, err = r.client.Site(ctx, site(0), 0); err == nil && len(s.Metadata) < len(siteMetadata) {
			err = fmt.Errorf("the site %q has the metadata %v, want that of its template", s.ID, s.Metadata)
		}
	}
	purged := purge(ctx, r.client.PurgeSites, tko.SiteSelect{IDs: []string{name + "/**"}})
	_, deleted := r.client.DeleteTemplate(ctx, template)
	return perSecond, spent, errors.Join(err, purged, deleted)
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
			row := rate(rowCreate(templates), made.perSecond, raw, rawInserts)
			row.Aim = aimCreate * raw
			row.also(made.spent.String())
			r.add(row)
		}
		if err = errors.Join(err, made.purge(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// manyTemplates is the number of templates of the deployments in rows with many.
const manyTemplates = 100

// deploymentsMade are deployments that a row uses.
type deploymentsMade struct {
	*run
	name      string
	ids       []tko.DeploymentID
	perSecond float64
	spent     cost
}

// newDeployments creates n deployments one by one, in equal numbers of some templates.
func (r *run) newDeployments(ctx context.Context, templates, n int) (made deploymentsMade, err error) {
	made = deploymentsMade{run: r, name: r.name("deployments"), ids: make([]tko.DeploymentID, n)}
	p, err := decode(fmt.Sprintf(functionPackage+padding, "upf", "acme", "v1.0.0", marker))
	if err != nil {
		return made, err
	}
	template := func(i int) tko.TemplateID { return tko.TemplateID(fmt.Sprintf("%s/%03d", made.name, i%templates)) }
	for i := range templates {
		if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: template(i), Package: p, Metadata: map[string]string{"fleet": "created", "number": strconv.Itoa(i)}}); err != nil {
			return made, err
		}
	}
	l, err := newLoad(ctx, r.Address, r.Clients)
	if err != nil {
		return made, err
	}
	defer l.close()
	before := r.cost(ctx)
	made.perSecond, err = l.run(ctx, n, func(ctx context.Context, client, i int) (err error) {
		made.ids[i], err = l.clients[client].CreateDeployment(ctx, tko.NewDeployment{Template: template(i), Site: r.fleet.Site(i % r.fleet.Sites).ID})
		return err
	})
	made.spent = r.since(ctx, before, n)
	return made, err
}

// purge deletes the deployments and their templates.
func (m deploymentsMade) purge(ctx context.Context) error {
	deployments := purge(ctx, m.client.PurgeDeployments, tko.DeploymentSelect{Templates: []string{m.name + "/*"}})
	return errors.Join(deployments, purge(ctx, m.client.PurgeTemplates, tko.TemplateSelect{IDs: []string{m.name + "/*"}}))
}

// purge deletes a row's own entities. It confirms their number, because they may be the
// most of a small fleet.
func purge[S any](ctx context.Context, do func(context.Context, S, bool) (tko.Deleted, error), own S) error {
	would, err := do(ctx, own, true)
	if err != nil || would.Count == 0 {
		return err
	}
	_, err = do(tko.WithConfirmation(ctx, would.Count), own, false)
	return err
}

// modify starts and ends modifications, each of a deployment of its own, that change one
// value of the package.
func (r *run) modify(ctx context.Context) error {
	n := max(1, r.Create/2)
	made, err := r.newDeployments(ctx, 1, n)
	if err != nil {
		return errors.Join(err, made.purge(ctx))
	}
	l, err := newLoad(ctx, r.Address, r.Clients)
	if err != nil {
		return errors.Join(err, made.purge(ctx))
	}
	defer l.close()
	before := r.cost(ctx)
	perSecond, err := l.run(ctx, n, func(ctx context.Context, client, i int) error {
		return modifyOne(ctx, l.data[client], made.ids[i], marker, fmt.Sprintf("%0*d", len(marker), i))
	})
	if err == nil {
		row := Row{What: rowModification(r.Clients), Value: perSecond, Unit: PerSecond, Aim: aimModification, Note: r.since(ctx, before, n).String()}
		r.add(row)
	}
	return errors.Join(err, made.purge(ctx))
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
	perSecond, err := r.createDependents(ctx)
	if err != nil {
		return err
	}
	r.add(rate(rowChildren(r.Dependents), perSecond, raw, rawInserts))
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
		return r.database.size(ctx)
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

func (r *run) createDependents(ctx context.Context) (perSecond float64, err error) {
	p, err := decode(fmt.Sprintf(functionPackage, "upf", "acme", "v1.0.0"))
	if err != nil {
		return 0, err
	}
	template := tko.TemplateID(r.name("template"))
	if _, err := r.client.RegisterTemplate(ctx, tko.Template{ID: template, Package: p, Metadata: map[string]string{"fleet": "dependents"}}); err != nil {
		return 0, err
	}
	parent, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Prepared: true, Approved: true})
	if err != nil {
		return 0, err
	}
	const batch = 500
	batches := (r.Dependents + batch - 1) / batch
	merge := krm.Package(nil).WithDeployment("", "", true, true)
	perSecond, err = parallel(ctx, 4, batches, func(ctx context.Context, b int) error {
		n := tko.NewChildren{Parent: parent, Merge: merge}
		for i := b * batch; i < min(r.Dependents, (b+1)*batch); i++ {
			n.Children = append(n.Children, tko.NewChild{Origin: strconv.Itoa(i), Template: template, Site: r.fleet.Site(i % r.fleet.Sites).ID})
		}
		_, _, err := r.client.CreateChildren(ctx, n)
		return err
	})
	if err != nil {
		return 0, err
	}
	r.dependent = parent
	return perSecond * float64(r.Dependents) / float64(batches), nil
}

const aimWait = 100 * time.Millisecond

// deletes deletes records on which many others depend, while clients write.
func (r *run) deletes(ctx context.Context) error {
	if r.dependent == "" {
		if _, err := r.createDependents(ctx); err != nil {
			return err
		}
	}
	var template tko.TemplateID
	one := 1
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Parent: r.dependent}, tko.ListOptions{Window: tko.Window{Max: &one}}) {
		if err != nil {
			return err
		}
		template = d.Template
	}
	if err := r.whileWriting(ctx, rowDeleteTemplate(r.Dependents), func() error {
		_, err := r.client.DeleteTemplate(ctx, template)
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
func (r *run) whileWriting(ctx context.Context, what string, do func() error) error {
	const writers = 4
	name := r.name("writers")
	var watch stopwatch
	var writing sync.WaitGroup
	var failed error
	var once sync.Once
	done := make(chan struct{})
	ready := make(chan struct{}, writers)
	for n := range writers {
		writing.Go(func() {
			for i := 0; ; i++ {
				s := tko.Site{ID: tko.SiteID(fmt.Sprintf("%s/%d/site-%06d", name, n, i))}
				began := time.Now()
				if _, err := r.client.RegisterSite(ctx, s); err != nil {
					once.Do(func() { failed = err })
				}
				if watch.add(time.Since(began)); i == 10 {
					ready <- struct{}{}
				}
				select {
				case <-done:
					return
				case <-ctx.Done():
					return
				default:
				}
			}
		})
	}
	for range writers {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	began := time.Now()
	err := do()
	took := time.Since(began)
	close(done)
	writing.Wait()
	if err = errors.Join(err, failed); err == nil {
		r.add(Row{
			What: what, Value: quantile(watch.took, 100).Seconds(), Unit: Seconds, Aim: aimWait.Seconds(),
			Note: fmt.Sprintf("p99 %s of %d writes; took %s", short(quantile(watch.took, 99)), len(watch.took), short(took)),
		})
	}
	purged := purge(ctx, r.client.PurgeSites, tko.SiteSelect{IDs: []string{name + "/**"}})
	return errors.Join(err, purged)
}
