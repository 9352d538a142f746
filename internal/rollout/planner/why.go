package planner

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// ExplainSite returns whether the placements of a package select a site: see
// [topology.Explain].
func (p *Planner) ExplainSite(pkg krm.Package, site tko.Site, children []tko.Deployment) []tko.PlacementExplanation {
	return topology.Explain(pkg, site, children)
}

// Uses returns the resources of a package that name or select a template: see
// [topology.Uses].
func (p *Planner) Uses(pkg krm.Package, template tko.Template) []tko.ImpactTopology {
	return topology.Uses(pkg, template)
}

// Impact plans upgrades of all deployments of a template to another package of it, which
// isn't registered: nil is that of its current revision.
func (p *Planner) Impact(ctx context.Context, id tko.TemplateID, pkg krm.Package, emit func(plan.Draft) error) error {
	open := p.open
	if pkg != nil {
		open = func(ctx context.Context) (Snapshot, error) {
			s, err := p.open(ctx)
			return candidate{s, id, pkg}, err
		}
	}
	with := New(open, p.options)
	return with.Plan(ctx, plan.Request{Rollout: "impact", Spec: spec.Rollout{
		Edits:     []spec.Edit{{Upgrade: &spec.Upgrade{To: id}, Select: tko.DeploymentSelect{Templates: []string{tko.LiteralPattern(string(id))}}}},
		Conflicts: merge.Fail,
	}}, emit)
}

// A candidate is a snapshot in which the newest revision of a template has another
// package.
type candidate struct {
	Snapshot
	id  tko.TemplateID
	pkg krm.Package
}

func (c candidate) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	if id != c.id {
		return c.Snapshot.Template(ctx, id, revision)
	}
	t, err := c.Snapshot.Template(ctx, id, 0)
	if err != nil {
		return t, err
	}
	if revision != 0 && revision <= t.Stamp.Revision {
		return c.Snapshot.Template(ctx, id, revision)
	}
	t.Package = c.pkg
	t.Stamp.Revision++
	return t, nil
}

// Changed returns a deployment with another package. The template that it is made from
// isn't stored, so that the deployment's metadata stays.
func (c candidate) Changed(ctx context.Context, d Deployment, change Change) (Deployment, error) {
	change.From, change.Derivation = nil, nil
	return c.Snapshot.Changed(ctx, d, change)
}
