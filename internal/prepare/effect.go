package prepare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the Handled and Matched conditions, beside those of package
// topology.
const (
	ReasonNoPlugin    = "NoPlugin"    // no plugin is for a resource
	ReasonNotPrepared = "NotPrepared" // a plugin for a resource was registered too late
	ReasonHandled     = "Handled"     // plugins are for all of them
	ReasonMatched     = "Matched"     // each selector matches something
)

// pluginGroups is how the groups of plugins' resources end.
const pluginGroups = ".plugin.nephio.org"

// targetGroups are those of the targets that are built into the meta-scheduler.
var targetGroups = []string{"git.plugin.nephio.org", "kubernetes.plugin.nephio.org", "osm.plugin.nephio.org"}

// effects are the conditions that say which parts of a prepared package have no
// effect. One that says nothing new to a user, because all is well and was, is
// left out.
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
		return c.Status == tko.ConditionTrue && !slices.ContainsFunc(conditions, func(was tko.Condition) bool { return was.Type == c.Type })
	}), nil
}

// handled says whether plugins are registered for all resources that are for
// plugins. Another resource of a plugin's group may be its configuration.
func (p *Preparer) handled(ctx context.Context, pkg krm.Package) (tko.Condition, error) {
	c := tko.Condition{Type: tko.ConditionHandled, Status: tko.ConditionTrue, Reason: ReasonHandled, Message: "a plugin is registered for each resource that is for one"}
	open := map[string][]krm.Identity{} // by group
	for _, r := range pkg {
		id := r.Identity()
		where := r.Annotation(krm.AnnotationPrepare)
		if strings.HasSuffix(id.Group, pluginGroups) && !slices.Contains(targetGroups, id.Group) && !r.IsPrepared() && (where == "" || where == krm.Here) {
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
	for _, r := range pkg { // in their order
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
		c.Message = bounded(fmt.Sprintf("no plugin is registered for %s, so nothing was done for it: check its apiVersion and kind, or register a plugin, and take the annotation %s off the Deployment resource",
			strings.Join(names, ", "), krm.AnnotationPrepared))
	}
	return c, nil
}

// matched says whether all that placements select is there.
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

// reconsider updates the conditions of a prepared deployment of which a part had
// no effect. Its work stays in the queue as long as one has none, so that new
// plugins and sites stir it up.
func (p *Preparer) reconsider(ctx context.Context, d tko.Deployment) (lacking bool, err error) {
	lacks := func(all []tko.Condition) bool {
		return slices.ContainsFunc(all, func(c tko.Condition) bool {
			return (c.Type == tko.ConditionHandled || c.Type == tko.ConditionMatched) && c.Status == tko.ConditionFalse
		})
	}
	living := topology.Living(d.Package)
	if !lacks(d.Stamp.Conditions) && len(living) == 0 {
		return false, nil
	}
	if len(living) == 0 {
		living = nil // those that are evaluated once stay as they were
	}
	conditions, err := p.effects(ctx, d.Stamp.Conditions, d.Package, living)
	if err != nil {
		return false, err
	}
	lacking = lacks(conditions)
	conditions = slices.DeleteFunc(conditions, func(c tko.Condition) bool {
		return slices.ContainsFunc(d.Stamp.Conditions, func(was tko.Condition) bool {
			return was.Type == c.Type && was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message
		})
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

// placementsOf are the placements of a package that were prepared here.
func placementsOf(pkg krm.Package) []krm.Identity {
	ids := []krm.Identity{}
	for _, r := range pkg {
		if r.GVK() == topology.PlacementGVK && r.IsPrepared() {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}
