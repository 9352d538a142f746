package prepare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the Handled and Matched conditions, in addition to those of
// package topology.
const (
	ReasonNoPlugin    = "NoPlugin"    // no plugin is registered for a resource
	ReasonNotPrepared = "NotPrepared" // a plugin for a resource was registered too late
	ReasonHandled     = "Handled"     // plugins are registered for all of them
	ReasonMatched     = "Matched"     // each selector matches something
)

// effects returns the conditions that report which parts of a prepared package have
// no effect. It leaves out a condition that is True and was never reported.
func (p *Preparer) effects(ctx context.Context, conditions []tko.Condition, pkg krm.Package, placements []krm.Identity) ([]tko.Condition, error) {
	handled, err := p.handled(ctx, pkg)
	if err != nil {
		return nil, err
	}
	all := []tko.Condition{handled}
	if placements != nil {
		matched, err := p.matched(ctx, pkg, placements)
		if err != nil {
			return nil, err
		}
		all = append(all, matched)
	}
	return slices.DeleteFunc(all, func(c tko.Condition) bool {
		return c.Status == tko.ConditionTrue && !tko.HasCondition(conditions, c.Type)
	}), nil
}

// handled returns the Handled condition: whether plugins are registered for all
// resources that are for plugins. A resource in the group of a registered plugin's
// trigger counts as handled, because it may be the plugin's configuration.
func (p *Preparer) handled(ctx context.Context, pkg krm.Package) (tko.Condition, error) {
	c := tko.Condition{Type: tko.ConditionHandled, Status: tko.ConditionTrue, Reason: ReasonHandled, Message: "a plugin is registered for each resource that is for one"}
	open := map[string][]krm.Identity{} // by group
	for _, r := range pkg {
		id := r.Identity()
		where := r.Annotation(krm.AnnotationPrepare)
		if tko.IsPluginGroup(id.Group) && !place.IsGroup(id.Group) && !r.IsPrepared() && (where == "" || where == krm.Here) {
			open[id.Group] = append(open[id.Group], id)
		}
	}
	if len(open) == 0 {
		return c, nil
	}
	var names, late []string
	for plugin, err := range p.client.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{}) {
		if err != nil {
			return c, fmt.Errorf("list plugins: %w", err)
		}
		for _, trigger := range plugin.Triggers {
			for _, id := range open[trigger.Group] {
				if plugin.Type == tko.PluginPrepare && id.GVK == trigger {
					late = append(late, id.String())
				}
			}
		}
		for _, trigger := range plugin.Triggers {
			delete(open, trigger.Group)
		}
	}
	for _, r := range pkg { // in the order of the package
		if slices.Contains(open[r.GVK().Group], r.Identity()) {
			names = append(names, r.Identity().String())
		}
	}
	if len(late) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, ReasonNotPrepared
		c.Message = bounded(fmt.Sprintf("a plugin for %s was registered after the deployment was prepared: take the annotation %s off the Deployment resource to prepare it again",
			strings.Join(late, ", "), krm.AnnotationPrepared))
	}
	if len(names) > 0 {
		c.Status, c.Reason = tko.ConditionFalse, ReasonNoPlugin
		c.Message = bounded(fmt.Sprintf("no plugin is registered for %s, so it was not processed: check its apiVersion and kind, or register a plugin, and take the annotation %s off the Deployment resource",
			strings.Join(names, ", "), krm.AnnotationPrepared))
	}
	return c, nil
}

// matched returns the Matched condition: whether each selector of placements matches
// a site.
func (p *Preparer) matched(ctx context.Context, pkg krm.Package, placements []krm.Identity) (tko.Condition, error) {
	c := tko.Condition{Type: tko.ConditionMatched, Status: tko.ConditionTrue, Reason: ReasonMatched, Message: "each selector matches a site"}
	empty, err := (&topology.Preparer{Client: p.client}).Unmatched(ctx, pkg, placements)
	if err != nil || len(empty) == 0 {
		return c, err
	}
	c.Status, c.Reason = tko.ConditionFalse, topology.ReasonSelectMatchedNothing
	c.Message = bounded(fmt.Sprintf("%s: no site has matching metadata, so no deployment was made for it: register sites, or change the selector. "+
		"A Placement with spec.update Apply or Propose is evaluated again when sites change", strings.Join(empty, ", ")))
	return c, nil
}

// updateEffects updates the conditions of a prepared deployment of which a part had
// no effect. As long as a part has none (lacking), the deployment's work stays in the
// queue, so that new plugins and sites make it due.
func (p *Preparer) updateEffects(ctx context.Context, d tko.Deployment) (lacking bool, err error) {
	lacks := func(all []tko.Condition) bool {
		return slices.ContainsFunc(all, func(c tko.Condition) bool {
			return (c.Type == tko.ConditionHandled || c.Type == tko.ConditionMatched) && c.Status == tko.ConditionFalse
		})
	}
	updating := topology.Updating(d.Package)
	if !lacks(d.Stamp.Conditions) && len(updating) == 0 {
		return false, nil
	}
	if len(updating) == 0 {
		updating = nil // the condition of placements that are evaluated once stays
	}
	conditions, err := p.effects(ctx, d.Stamp.Conditions, d.Package, updating)
	if err != nil {
		return false, err
	}
	lacking = lacks(conditions)
	conditions = slices.DeleteFunc(conditions, func(c tko.Condition) bool {
		was := tko.FindCondition(d.Stamp.Conditions, c.Type)
		return was != nil && was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message
	})
	if len(conditions) == 0 {
		return lacking, nil
	}
	for i := range conditions {
		conditions[i].ObservedRevision = d.Stamp.Revision
	}
	if err := p.client.SetConditions(ctx, tko.KindDeployment, string(d.ID), conditions); err != nil {
		return false, fmt.Errorf("set the conditions of deployment %q: %w", d.ID, err)
	}
	return lacking, nil
}

// placementsOf returns the prepared placements of a package.
func placementsOf(pkg krm.Package) []krm.Identity {
	ids := []krm.Identity{}
	for _, r := range pkg {
		if r.GVK() == topology.PlacementGVK && r.IsPrepared() {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}
