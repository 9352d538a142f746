package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// What to do with a cluster that a site's package names no longer.
const (
	cleanupLeave  = "Leave"
	cleanupRemove = "Remove"
)

// The reasons of what is said of a cluster that was left.
const (
	ReasonLeft    = "Left"    // what was applied there stays there, and nobody looks after it
	ReasonRemoved = "Removed" // nothing that was applied there is left
)

// Same says whether two resources of a site's package, the older first, name
// one place: what the one has applied, the other looks after.
func (t *Target) Same(former, now krm.Resource) bool {
	a, err := readSpec(former)
	if err != nil {
		return true // it never applied anything
	}
	b, err := readSpec(now)
	return err == nil && a.Source == b.Source && a.Inventory == b.Inventory
}

// Place names the cluster of a resource of a site's package as verdicts of Leave
// do; it is empty if the resource is invalid.
func (t *Target) Place(trigger krm.Resource) string {
	s, err := readSpec(trigger)
	if err != nil {
		return ""
	}
	return s.Source.String()
}

// Leave does what a resource says that was in the site's package, and isn't any
// more, about what was applied to its cluster: it stays there, or is removed,
// within the resource's budget. Nothing is removed as long as nobody can tell
// that none of the resources that the package has now is of the same cluster.
// The verdict says what came of it; it is final if again is 0 and err is nil.
func (t *Target) Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Outcome, again time.Duration, err error) {
	s, err := readSpec(former)
	if err != nil { // it never applied anything
		return report.Outcome{}, 0, nil
	}
	conn, release, err := t.connections.get(ctx, s.Source)
	if err != nil {
		return t.notLeft(ctx, s, err)
	}
	defer release()
	recorded, err := conn.readInventories(ctx, s.Inventory, site.ID)
	if err != nil {
		return t.notLeft(ctx, s, err)
	}
	if len(recorded.mine) == 0 {
		return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonRemoved, Message: fmt.Sprintf("nothing that was applied to %s is left there", s.Source)}, 0, nil
	}
	for _, r := range now {
		other, same, err := t.isOf(ctx, r, s, recorded)
		switch {
		case err != nil:
			return t.notLeft(ctx, s, fmt.Errorf("another Cluster of the site may be the same cluster: %w", err))
		case same && other.Inventory == s.Inventory:
			return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonApplied, Message: fmt.Sprintf("%s is the same cluster as %s, by which TKO looks after it now", s.Source, other.Source)}, 0, nil
		case same:
			return left(s, fmt.Sprintf("what is recorded in namespace %q", s.Inventory)), 0, nil
		}
	}
	if s.Cleanup == cleanupLeave {
		return left(s, fmt.Sprintf("%d objects of %d deployments", recorded.total(), len(recorded.mine))), 0, nil
	}
	l := &look{target: t, conn: conn, spec: s, site: site}
	err = l.do(ctx)
	l.log(ctx)
	if err != nil {
		return t.notLeft(ctx, s, err)
	}
	switch {
	case l.pruning.ask != "":
		v = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonApproval, Message: fmt.Sprintf(
			"%s: %s, put it back for that, and take it out again", s.Source, l.question())}
		return v, jittered(t.options.Interval), nil
	case len(l.leaving) > 0:
		v = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonRemoving, Message: fmt.Sprintf("from %s: %s", s.Source, firstFew(l.leaving, fewObjects))}
		return v, t.again(site), nil
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonRemoved, Message: "what was applied to " + s.Source.String() + " was removed there"}, 0, nil
}

func left(s spec, what string) report.Outcome {
	return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonLeft, Message: fmt.Sprintf("left as it is, and nobody looks after it: %s, in %s", what, s.Source)}
}

// notLeft is for a cluster that can't be looked at: what is to be left, is left.
func (t *Target) notLeft(ctx context.Context, s spec, err error) (report.Outcome, time.Duration, error) {
	if ctx.Err() != nil {
		return report.Outcome{}, 0, context.Cause(ctx)
	}
	if errors.Is(err, tko.ErrConflict) {
		return report.Outcome{}, 0, err
	}
	if s.Cleanup == cleanupLeave {
		return left(s, "what was applied, if anything"), 0, nil
	}
	return report.Outcome{
		Status: tko.ConditionFalse, Reason: ReasonRemoving,
		Message: fmt.Sprintf("what was applied to %s is removed when it can be: %s", s.Source, reached(err)),
	}, jittered(t.options.Interval), nil
}

// isOf says whether a resource of the package is of the cluster that has these
// inventories.
func (t *Target) isOf(ctx context.Context, r krm.Resource, former spec, recorded inventories) (s spec, same bool, err error) {
	if s, err = readSpec(r); err != nil {
		return s, false, err
	}
	conn, release, err := t.connections.get(ctx, s.Source)
	if err != nil {
		return s, false, err
	}
	defer release()
	for _, i := range recorded.mine {
		there, err := conn.get(ctx, key{Kind: "ConfigMap", Namespace: former.Inventory, Name: i.resource.GetName()}, "v1")
		if err != nil {
			return s, false, reached(err)
		}
		if there != nil && there.GetUID() == i.resource.GetUID() {
			return s, true, nil
		}
	}
	return s, false, nil
}

// isCleanup says whether a text is what to do with a cluster that was left.
func isCleanup(text string) bool { return slices.Contains([]string{cleanupLeave, cleanupRemove}, text) }
