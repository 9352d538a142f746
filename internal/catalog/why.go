package catalog

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/service"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of explanations.
const (
	maxImpactLists     = 200 // rows of each list
	maxImpactTemplates = 5000
	maxImpactConflicts = 10
)

// An Explainer explains where values come from, why placements select sites, and what depends
// on a template.
type Explainer struct {
	rights     *rights.Authorizer // callers enter and commit through it
	store      record.Store
	reader     record.Lookup
	validation *validation
	runs       *PluginRuns // Options.Runs

	entities *Entities
	rollouts *service.Keeper
	control  *service.RolloutControl
}

// A topologist knows the resources of topologies. Planners do.
type topologist interface {
	ExplainSite(pkg krm.Package, site tko.Site, children []tko.Deployment) []tko.PlacementExplanation
	Uses(pkg krm.Package, template tko.Template) []tko.ImpactTopology
	Impact(ctx context.Context, id tko.TemplateID, pkg krm.Package, emit func(plan.Draft) error) error
}

func (s *Explainer) topologist() (topologist, error) {
	t, ok := s.rollouts.Planner().(topologist)
	if !ok {
		return nil, errors.New("this server has no planner")
	}
	return t, nil
}

// ExplainSite returns whether each placement of a deployment, or of a template, selects a
// site, and if not the conditions that the site doesn't meet.
func (s *Explainer) ExplainSite(ctx context.Context, request tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	if (request.Deployment == "") == (request.Template == "") {
		return tko.SiteExplanation{}, tko.Errorf(tko.ErrInvalid, "name a topology: its deployment or its template, one of them")
	}
	site, err := s.entities.Site(ctx, request.Site, 0)
	if err != nil {
		return tko.SiteExplanation{}, err
	}
	knows, err := s.topologist()
	if err != nil {
		return tko.SiteExplanation{}, err
	}
	var pkg krm.Package
	var children []tko.Deployment
	if request.Template != "" {
		t, err := s.entities.Template(ctx, request.Template, 0)
		if err != nil {
			return tko.SiteExplanation{}, err
		}
		pkg = t.Package
	} else {
		d, err := s.entities.Deployment(ctx, request.Deployment, 0)
		if err != nil {
			return tko.SiteExplanation{}, err
		}
		pkg = d.Package
		for child, err := range s.entities.Deployments(ctx, tko.DeploymentSelect{Parent: d.ID, Sites: []string{tko.LiteralPattern(string(site.ID))}}, tko.ListOptions{}) {
			if err != nil {
				return tko.SiteExplanation{}, err
			}
			children = append(children, child)
		}
	}
	return tko.SiteExplanation{Site: site.ID, Placements: knows.ExplainSite(pkg, site, children)}, nil
}

// TemplateImpact returns what depends on a template, as far as the caller may read it,
// and what upgrades of its deployments would change: to its current revision, or to a
// package that isn't registered yet.
func (s *Explainer) TemplateImpact(ctx context.Context, request tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	t, err := s.entities.Template(ctx, request.Template, 0)
	if err != nil {
		return tko.TemplateImpact{}, err
	}
	knows, err := s.topologist()
	if err != nil {
		return tko.TemplateImpact{}, err
	}
	if request.Package != nil {
		if err := content.CheckPackage(request.Package); err != nil {
			return tko.TemplateImpact{}, err
		}
		if request.Package, err = s.rights.Restored(ctx, record.Key{Kind: tko.KindTemplate, ID: string(t.ID)}, request.Package); err != nil {
			return tko.TemplateImpact{}, err
		}
	}
	i := tko.TemplateImpact{Template: t.ID, Revision: t.Stamp.Revision}
	seen, parents, err := s.countImpact(ctx, &i)
	if err == nil {
		err = s.impactTopologies(ctx, &i, t, knows, parents)
	}
	if err == nil {
		err = s.impactRollouts(ctx, &i)
	}
	if err == nil {
		err = s.impactGroups(ctx, &i, knows, request.Package, seen)
	}
	return i, err
}

// countImpact counts the deployments and sites of a template. It returns the deployments
// that the caller sees, and their parents.
func (s *Explainer) countImpact(ctx context.Context, i *tko.TemplateImpact) (seen map[tko.DeploymentID]bool, parents []tko.DeploymentID, err error) {
	pattern := []string{tko.LiteralPattern(string(i.Template))}
	seen = map[tko.DeploymentID]bool{}
	revisions, sites, above := map[int64]int{}, map[tko.SiteID]bool{}, map[tko.DeploymentID]bool{}
	for d, err := range s.entities.Deployments(ctx, tko.DeploymentSelect{Templates: pattern}, tko.ListOptions{}) {
		if err != nil {
			return nil, nil, err
		}
		i.Deployments++
		seen[d.ID] = true
		revisions[d.TemplateRevision]++
		if d.Site != "" {
			sites[d.Site] = true
		}
		if d.Parent != "" {
			above[d.Parent] = true
		}
	}
	i.DeploymentSites = len(sites)
	for _, revision := range slices.Backward(slices.Sorted(maps.Keys(revisions))) {
		if len(i.Revisions) == maxImpactLists {
			i.More = true
			break
		}
		i.Revisions = append(i.Revisions, tko.ImpactRevision{Revision: revision, Deployments: revisions[revision]})
	}
	for _, err := range s.entities.Sites(ctx, tko.SiteSelect{Templates: pattern}, tko.ListOptions{}) {
		if err != nil {
			return nil, nil, err
		}
		i.Sites++
	}
	return seen, slices.Sorted(maps.Keys(above)), nil
}

// impactTopologies finds the topologies that use a template: templates, and the parents
// of its deployments.
func (s *Explainer) impactTopologies(ctx context.Context, i *tko.TemplateImpact, t tko.Template, knows topologist, parents []tko.DeploymentID) error {
	add := func(kind tko.Kind, id string, pkg krm.Package) (full bool) {
		for _, use := range knows.Uses(pkg, t) {
			if len(i.Topologies) == maxImpactLists {
				i.More = true
				return true
			}
			use.Kind, use.ID = kind, id
			i.Topologies = append(i.Topologies, use)
		}
		return false
	}
	n := 0
	for other, err := range s.entities.Templates(ctx, tko.TemplateSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return err
		}
		n++
		if n > maxImpactTemplates {
			i.More = true
			break
		}
		if add(tko.KindTemplate, string(other.ID), other.Package) {
			return nil
		}
	}
	for _, id := range parents {
		parent, err := s.entities.Deployment(ctx, id, 0)
		if isNone(err) {
			continue // deleted, or not visible
		}
		if err != nil {
			return err
		}
		if add(tko.KindDeployment, string(id), parent.Package) {
			return nil
		}
	}
	return nil
}

// impactRollouts finds the active rollouts that upgrade to a template, or that name its
// deployments.
func (s *Explainer) impactRollouts(ctx context.Context, i *tko.TemplateImpact) error {
	if _, _, err := s.rights.Enter(ctx, tko.KindRollout, access.Read); err != nil {
		return nil // the caller may not read them
	}
	for r, err := range s.control.Rollouts(ctx, tko.RolloutSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return err
		}
		sp, err := spec.Parse(r.Package)
		if err != nil || r.State == "Done" || r.State == "Undone" || r.State == "Cancelled" || !concerns(sp, i.Template) {
			continue
		}
		if len(i.Rollouts) == maxImpactLists {
			i.More = true
			return nil
		}
		i.Rollouts = append(i.Rollouts, tko.ImpactRollout{ID: r.ID, State: r.State})
	}
	return nil
}

func concerns(sp spec.Rollout, id tko.TemplateID) bool {
	return slices.ContainsFunc(sp.Edits, func(e spec.Edit) bool {
		return e.Upgrade != nil && e.Upgrade.To == id || slices.ContainsFunc(e.Select.Templates, func(text string) bool {
			p, err := tko.ParsePattern(text)
			return err == nil && p.Match(string(id))
		})
	})
}

// impactGroups groups what upgrades would change.
func (s *Explainer) impactGroups(ctx context.Context, i *tko.TemplateImpact, knows topologist, pkg krm.Package, seen map[tko.DeploymentID]bool) error {
	types, mask, err := s.validation.differ(ctx)
	if err != nil {
		return err
	}
	grouper := plan.NewGrouper(types, mask)
	conflicts := map[tko.DeploymentID][]string{}
	c, err := s.rights.Caller(ctx)
	if err != nil {
		return err
	}
	all := c.View().IsAll()
	// Plans need plugins and topologies that the caller may not read.
	planning := rights.WithPlanning(ctx, c)
	err = knows.Impact(planning, i.Template, pkg, func(d plan.Draft) error {
		switch {
		case !all && !seen[d.Deployment]:
			return nil // the caller may not read it
		case d.Kind == plan.Same:
			i.Same++
			return nil
		case len(d.Unknown) > 0:
			i.Unknown++
		}
		before, after := service.DraftPackages(d)
		tokens := map[string]string{string(d.Deployment): "{deployment}"}
		if d.Site != "" {
			tokens[string(d.Site)] = "{site}"
		}
		if d.Kind == plan.Conflict || d.Kind == plan.Invalid {
			before, after = nil, nil
			if len(conflicts) < maxImpactLists {
				conflicts[d.Deployment] = d.Findings
			}
		}
		grouper.Add(d.Row, before, after, tokens)
		return nil
	})
	if err != nil {
		return err
	}
	groups, _ := grouper.Finish()
	for _, g := range groups {
		one := tko.ImpactGroup{Kind: g.Kind.String(), Deployments: g.Count, Examples: g.Examples, MoreChanges: g.More, Changes: plan.Shown(g.Changes)}
		if len(g.Examples) > 0 {
			found := conflicts[g.Examples[0]]
			one.Conflicts = found[:min(len(found), maxImpactConflicts)]
		}
		i.Groups = append(i.Groups, one)
	}
	return nil
}
