package prepare

import (
	"context"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// A withdrawer is a Runner of plugins whose work continues in other systems.
type withdrawer interface {
	// Remember reports which plugins are registered.
	Remember(plugins ...tko.Plugin)
	// Withdraw ends what plugins do for a deployment in other systems, unless it is wanted.
	Withdraw(ctx context.Context, w tko.Withdrawal) error
}

// withdraw ends the work that continues in other systems for a deployment.
func (p *Preparer) withdraw(ctx context.Context, item tko.WorkItem, of tko.Withdrawal) error {
	w, ok := p.runner.(withdrawer)
	if !ok {
		return nil
	}
	of.Type, of.Attempt = tko.PluginPrepare, item.Attempt
	return w.Withdraw(ctx, of)
}

// abandon ends the work that continues in other systems for a deployment that was deleted.
func (p *Preparer) abandon(ctx context.Context, id tko.DeploymentID, item tko.WorkItem) (work.Result, error) {
	if item.Keep {
		return work.Result{Outcome: tko.WorkDone}, nil
	}
	plugins, err := p.plugins.get(ctx, 1) // those of the last moment will do
	if err != nil {
		return work.Result{}, err
	}
	if err := p.withdraw(ctx, item, tko.Withdrawal{Entity: string(id), Registered: plugins.elsewhere()}); err != nil {
		return work.Result{}, err
	}
	return work.Result{Outcome: tko.WorkDone}, nil
}

// withdraw ends the work that continues in other systems for the deployment, and that its
// preparation no longer needs.
func (rc *reconciliation) withdraw(ctx context.Context) error {
	was := tko.FindCondition(rc.d.Stamp.Conditions, tko.ConditionPrepared)
	if rc.item.Keep || was == nil || was.Status == tko.ConditionTrue {
		return nil
	}
	// Otherwise it is what runs, or nothing ran.
	changed := len(rc.running) == 0 && was.Reason == ReasonRunning || was.ObservedRevision != rc.d.Stamp.Revision
	return rc.p.withdraw(ctx, rc.item, tko.Withdrawal{Entity: string(rc.d.ID), Registered: rc.plugins.elsewhere(), Wanted: rc.running, Removed: !changed})
}

// elsewhere returns the plugins whose work continues in other systems.
func (t triggerMap) elsewhere() []tko.Plugin {
	var found []tko.Plugin
	for _, plugins := range t {
		for _, p := range plugins {
			if p.UsesAWX() && !slices.ContainsFunc(found, func(f tko.Plugin) bool { return f.ID() == p.ID() }) {
				found = append(found, p)
			}
		}
	}
	return found
}

// isElsewhere reports whether the work of a plugin for a kind continues in another system.
func (t triggerMap) isElsewhere(gvk krm.GVK) bool {
	return slices.ContainsFunc(t[gvk], tko.Plugin.UsesAWX)
}
