package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

const rowDisk = "disk per deployment of a shared template"

func rowRegister(clients int) string { return fmt.Sprintf("register sites, %d clients", clients) }

func rowCreate(clients int) string {
	return fmt.Sprintf("create deployments of one template, %d clients", clients)
}

func rowChildren(n int) string { return fmt.Sprintf("create %d children, in batches of 500", n) }

func rowDeleteTemplate(n int) string {
	return fmt.Sprintf("delete a template of %d deployments: longest wait of writers", n)
}

func rowDeleteParent(n int) string {
	return fmt.Sprintf("delete a deployment with %d descendants: longest wait of writers", n)
}

// name returns a prefix for the IDs of a row's records. It differs in every run, because
// writing the same record again changes nothing.
func (r *run) name(what string) string {
	return fmt.Sprintf("bench-%d/%s", time.Now().UnixNano(), what)
}

func (r *run) register(ctx context.Context) error {
	raw, err := r.raw.insert(ctx)
	if err != nil {
		return err
	}
	name := r.name("sites")
	perSecond, err := parallel(ctx, r.Clients, r.Register, func(ctx context.Context, i int) error {
		s := r.fleet.Site(i)
		s.ID = tko.SiteID(fmt.Sprintf("%s/site-%06d", name, i))
		s.Metadata["fleet"] = name
		_, err := r.client.RegisterSite(ctx, s)
		return err
	})
	if err == nil {
		row := rate(rowRegister(r.Clients), perSecond, raw, rawInserts)
		row.Aim = raw
		r.add(row)
	}
	_, purged := r.client.PurgeSites(ctx, tko.SiteSelect{IDs: []string{name + "/**"}}, false)
	return errors.Join(err, purged)
}

func (r *run) create(ctx context.Context) error {
	raw, err := r.raw.insert(ctx)
	if err != nil {
		return err
	}
	name := r.name("deployments")
	template := r.fleet.template("upf", Stable)
	perSecond, err := parallel(ctx, r.Clients, r.Create, func(ctx context.Context, i int) error {
		_, err := r.client.CreateDeployment(ctx, tko.NewDeployment{
			Template: template, Site: r.fleet.Site(i % r.fleet.Sites).ID, Metadata: map[string]string{"bench": name},
		})
		return err
	})
	if err == nil {
		row := rate(rowCreate(r.Clients), perSecond, raw, rawInserts)
		row.Aim = 5000
		r.add(row)
	}
	_, purged := r.client.PurgeDeployments(ctx, tko.DeploymentSelect{Metadata: map[string]string{"bench": name}}, false)
	return errors.Join(err, purged)
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
	r.add(Row{What: rowDisk, Value: float64(after-before) / float64(r.Dependents), Unit: Bytes, Aim: 1000, Note: "with its history and indexes"})
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
	return r.whileWriting(ctx, rowDeleteParent(r.Dependents), func() error {
		_, err := r.client.DeleteDeployment(ctx, r.dependent)
		return err
	})
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
	_, purged := r.client.PurgeSites(ctx, tko.SiteSelect{IDs: []string{name + "/**"}}, false)
	return errors.Join(err, purged)
}
