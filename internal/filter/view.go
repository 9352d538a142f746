package filter

import (
	"context"
	"iter"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A Lister streams lists in the order of their IDs.
type Lister interface {
	Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error]
	Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error]
	Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error]
	Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error]
	Rollouts(ctx context.Context, sel tko.RolloutSelect, options tko.ListOptions) iter.Seq2[tko.Rollout, error]
}

// A Getter reads one entity with its package; revision 0 is the newest.
type Getter interface {
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error)
	Plugin(ctx context.Context, typ, name string) (tko.Plugin, error)
	Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error)
}

// A View is what a dashboard shows of an entity of each kind.
type View[R any] struct {
	Deployment func(tko.Deployment) R
	Site       func(tko.Site) R
	Template   func(tko.Template) R
	Plugin     func(tko.Plugin) R
	Rollout    func(tko.Rollout) R
}

// List lists the entities that a filter selects; templates and sites with the numbers of
// their deployments. An error comes last.
func (v View[R]) List(ctx context.Context, s Lister, f Filter, options tko.ListOptions) iter.Seq2[R, error] {
	options.Counts = f.Kind() == tko.KindSite || f.Kind() == tko.KindTemplate
	switch f.Kind() {
	case tko.KindSite:
		return all(s.Sites(ctx, f.Sites(), options), v.Site)
	case tko.KindTemplate:
		return all(s.Templates(ctx, f.Templates(), options), v.Template)
	case tko.KindPlugin:
		return all(s.Plugins(ctx, f.Plugins(), options), v.Plugin)
	case tko.KindRollout:
		return all(s.Rollouts(ctx, f.Rollouts(), options), v.Rollout)
	case tko.KindDeployment, tko.KindSource, tko.KindSubscription:
	}
	return all(s.Deployments(ctx, f.Deployments(), options), v.Deployment)
}

func all[T, R any](list iter.Seq2[T, error], show func(T) R) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for entity, err := range list {
			r, err := one(show)(entity, err)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Get reads an entity; templates and sites with the numbers of their deployments. The ID of a
// plugin is TYPE|NAME, and its revision is the newest.
func (v View[R]) Get(ctx context.Context, s Getter, kind tko.Kind, id string, revision int64) (R, error) {
	switch kind {
	case tko.KindSite:
		return one(func(site tko.Site) R {
			site.DeploymentCount, site.Deployments = max(site.DeploymentCount, len(site.Deployments)), nil
			return v.Site(site)
		})(s.Site(ctx, tko.SiteID(id), revision))
	case tko.KindTemplate:
		return one(func(t tko.Template) R {
			t.DeploymentCount, t.Deployments = max(t.DeploymentCount, len(t.Deployments)), nil
			return v.Template(t)
		})(s.Template(ctx, tko.TemplateID(id), revision))
	case tko.KindPlugin:
		typ, name, _ := strings.Cut(id, "|")
		return one(v.Plugin)(s.Plugin(ctx, typ, name))
	case tko.KindRollout:
		return one(v.Rollout)(s.Rollout(ctx, tko.RolloutID(id), revision))
	case tko.KindDeployment, tko.KindSource, tko.KindSubscription:
	}
	return one(v.Deployment)(s.Deployment(ctx, tko.DeploymentID(id), revision))
}

// one returns a function that shows an entity that was read, unless reading it failed.
func one[T, R any](show func(T) R) func(T, error) (R, error) {
	return func(entity T, err error) (r R, _ error) {
		if err == nil {
			r = show(entity)
		}
		return r, err
	}
}
