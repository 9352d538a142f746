package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// Leave handles the objects in a cluster that the site's package no longer names,
// according to the former resource: they stay, or are removed within its budget.
// Nothing is removed until it is certain that no current resource of the package, in
// now, names the same cluster. The outcome is final if again is 0 and err is nil;
// otherwise the caller calls Leave again after that time.
func (t *Target) Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Outcome, again time.Duration, err error) {
	s, err := trigger.Read(former)
	if err != nil { // it never applied anything
		return report.Outcome{}, 0, nil
	}
	rc, release, err := t.connect(ctx, site.ID, s)
	if err != nil {
		return t.cleanupPending(ctx, s, err)
	}
	defer release()
	recorded, err := rc.own.readInventories(ctx, s.Inventory, site.ID)
	if err != nil {
		return t.cleanupPending(ctx, s, err)
	}
	if len(recorded.mine) == 0 {
		return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonRemoved, Message: fmt.Sprintf("no objects are left in %s", s.Kubeconfig)}, 0, nil
	}
	for _, r := range now {
		other, same, err := t.isSameCluster(ctx, site.ID, r, s, recorded)
		switch {
		case err != nil:
			return t.cleanupPending(ctx, s, fmt.Errorf("another Cluster of the site may be the same cluster: %w", err))
		case same && other.Inventory == s.Inventory:
			return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonApplied, Message: fmt.Sprintf("%s is the same cluster as %s, which TKO reconciles now", s.Kubeconfig, other.Kubeconfig)}, 0, nil
		case same:
			return orphaned(s, fmt.Sprintf("the objects recorded in namespace %q", s.Inventory)), 0, nil
		}
	}
	if s.Cleanup == trigger.CleanupLeave {
		return orphaned(s, fmt.Sprintf("%d objects of %d deployments", recorded.total(), len(recorded.mine))), 0, nil
	}
	rc.site = site
	err = rc.run(ctx)
	rc.log(ctx)
	if err != nil {
		return t.cleanupPending(ctx, s, err)
	}
	switch {
	case rc.pruning.approval != "":
		v = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonApproval, Message: fmt.Sprintf(
			"%s: %s; put the resource back for that, and take it out again", s.Kubeconfig, rc.approvalMessage())}
		return v, jittered(t.options.Interval), nil
	case len(rc.removing) > 0:
		v = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonRemoving, Message: fmt.Sprintf("from %s: %s", s.Kubeconfig, firstFew(rc.removing, fewObjects))}
		return v, t.retryAfter(site), nil
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonRemoved, Message: "all applied objects in " + s.Kubeconfig.String() + " were removed"}, 0, nil
}

func orphaned(s spec, what string) report.Outcome {
	return report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonLeft, Message: fmt.Sprintf("left without reconciliation: %s, in %s", what, s.Kubeconfig)}
}

// cleanupPending returns the outcome for a cluster that can't be read. With cleanup
// Leave, that is final.
func (t *Target) cleanupPending(ctx context.Context, s spec, err error) (report.Outcome, time.Duration, error) {
	if ctx.Err() != nil {
		return report.Outcome{}, 0, context.Cause(ctx)
	}
	if errors.Is(err, tko.ErrConflict) || fence.Is(err) {
		return report.Outcome{}, 0, err
	}
	if s.Cleanup == trigger.CleanupLeave {
		return orphaned(s, "the applied objects, if any"), 0, nil
	}
	return report.Outcome{
		Status: tko.ConditionFalse, Reason: trigger.ReasonRemoving,
		Message: fmt.Sprintf("the objects in %s are not removed yet: %s", s.Kubeconfig, describeUnreachable(err)),
	}, jittered(t.options.Interval), nil
}

// isSameCluster returns whether a resource of the package names the cluster that has
// these inventories.
func (t *Target) isSameCluster(ctx context.Context, site tko.SiteID, r krm.Resource, former spec, recorded inventories) (s spec, same bool, err error) {
	if s, err = trigger.Read(r); err != nil {
		return s, false, err
	}
	conn, release, err := t.connections.get(ctx, t.options.Leash.Site(site), s.Kubeconfig, trigger.Impersonation{})
	if err != nil {
		return s, false, err
	}
	defer release()
	for _, i := range recorded.mine {
		there, err := conn.get(ctx, key{Kind: "ConfigMap", Namespace: former.Inventory, Name: i.resource.GetName()}, "v1")
		if err != nil {
			return s, false, describeUnreachable(err)
		}
		if there != nil && there.GetUID() == i.resource.GetUID() {
			return s, true, nil
		}
	}
	return s, false, nil
}
