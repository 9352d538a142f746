package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A scope has the entities that a row makes: all whose IDs, or those of their templates,
// begin with its name.
type scope struct {
	*run
	name string
}

// scope returns a scope that no other run has, because writing the same record again
// changes nothing.
func (r *run) scope(what string) scope {
	return scope{r, fmt.Sprintf("bench-%d/%s", time.Now().UnixNano(), what)}
}

func (s scope) site(i int) tko.SiteID { return tko.SiteID(fmt.Sprintf("%s/site-%06d", s.name, i)) }

// template registers a template.
func (s scope) template(ctx context.Context, name string, pkg krm.Package, metadata map[string]string) (tko.TemplateID, error) {
	t := tko.Template{ID: tko.TemplateID(s.name + "/" + name), Package: pkg, Metadata: metadata}
	_, err := s.client.RegisterTemplate(ctx, t)
	return t.ID, err
}

// registerSites registers n sites like one, by all clients.
func (s scope) registerSites(ctx context.Context, n int, like tko.Site) (measurement, error) {
	return s.load(ctx, s.Clients, 0, n, func(ctx context.Context, p peer, i int) error {
		site := like
		site.ID = s.site(i)
		_, err := p.RegisterSite(ctx, site)
		return err
	})
}

// purge deletes all of the scope.
func (s scope) purge(ctx context.Context) error {
	all := []string{s.name + "/**"}
	return errors.Join(
		purge(ctx, s.client.PurgeDeployments, tko.DeploymentSelect{Templates: all}),
		s.purgeSites(ctx),
		purge(ctx, s.client.PurgeTemplates, tko.TemplateSelect{IDs: all}),
	)
}

// purgeSites deletes the sites of the scope.
func (s scope) purgeSites(ctx context.Context) error {
	return purge(ctx, s.client.PurgeSites, tko.SiteSelect{IDs: []string{s.name + "/**"}})
}

// purge deletes a row's own entities. It confirms their number, because they may be the
// most of a small fleet.
func purge[S any](ctx context.Context, do func(context.Context, S, bool) (tko.Deleted, error), own S) error {
	would, err := do(ctx, own, true)
	if err != nil || would.Count == 0 {
		return err
	}
	_, err = do(tko.WithConfirmation(ctx, would.Reach()), own, false)
	return err
}

// manyTemplates is the number of templates of the deployments in rows with many.
const manyTemplates = 100

// deploymentsMade are deployments that a row uses.
type deploymentsMade struct {
	scope
	measurement

	ids []tko.DeploymentID
}

// newDeployments creates n deployments one by one, in equal numbers of some templates.
func (r *run) newDeployments(ctx context.Context, templates, n int) (made deploymentsMade, err error) {
	made = deploymentsMade{scope: r.scope("deployments"), ids: make([]tko.DeploymentID, n)}
	p, err := decode(fmt.Sprintf(functionPackage+padding, "upf", "acme", "v1.0.0", marker))
	if err != nil {
		return made, err
	}
	of := make([]tko.TemplateID, templates)
	for i := range of {
		if of[i], err = made.template(ctx, fmt.Sprintf("%03d", i), p, map[string]string{"fleet": "created", "number": strconv.Itoa(i)}); err != nil {
			return made, err
		}
	}
	made.measurement, err = r.load(ctx, r.Clients, 0, n, func(ctx context.Context, p peer, i int) (err error) {
		made.ids[i], err = p.CreateDeployment(ctx, tko.NewDeployment{Template: of[i%templates], Site: r.fleet.Site(i % r.fleet.Sites).ID})
		return err
	})
	return made, err
}
