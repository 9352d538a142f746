package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// Compare returns what Schedule would change in the cluster of a trigger, and in the
// management cluster, and the orphans in the cluster. It changes nothing: it compares by
// dry-run applies. The differences are valid also with an error, which says what couldn't
// be compared.
func (t *Target) Compare(ctx context.Context, cluster krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Differences, error) {
	var found report.Differences
	s, err := trigger.Read(cluster)
	if err != nil {
		return found, err
	}
	rules, err := compileHealth(s.Health)
	if err != nil {
		return found, err
	}
	found.Changes, err = t.compareManagement(ctx, s, rules, site)
	if err != nil {
		err = fmt.Errorf("in the management cluster: %w", err)
	}
	rc, release, connectErr := t.connect(ctx, site.ID, s)
	if connectErr != nil {
		return found, errors.Join(err, describeUnreachable(connectErr))
	}
	defer release()
	rc.health, rc.site, rc.deployments, rc.held = rules, site, deployments, held
	own, ownErr := rc.compare(ctx)
	found.Changes = append(found.Changes, own...)
	if ownErr == nil {
		found.Orphans, found.Unsearched = rc.orphans(ctx)
	}
	return found, errors.Join(err, describeUnreachable(ownErr))
}

func (t *Target) compareManagement(ctx context.Context, s spec, rules healthRules, site tko.Site) ([]tko.SiteChange, error) {
	rc, release, err := t.ofManagement(ctx, s, rules, site)
	if err != nil || rc == nil {
		return nil, describeUnreachable(err)
	}
	defer release()
	changes, err := rc.compare(ctx)
	for i := range changes {
		changes[i].Deployment = "" // it is no deployment of users
		changes[i].Object += " in the management cluster"
	}
	return changes, describeUnreachable(err)
}

// compare observes and decides as run does, and returns the changes instead of making
// them.
func (rc *reconciliation) compare(ctx context.Context) ([]tko.SiteChange, error) {
	rc.spec.Drift = trigger.DriftReport // show changes by others, whatever the policy
	actions, err := rc.plan(ctx)
	if err != nil {
		return nil, err
	}
	var all []tko.SiteChange
	for id, problems := range rc.wanted.problems {
		for _, p := range problems {
			all = append(all, tko.SiteChange{Verb: tko.SiteBlocked, Object: p.object, Deployment: id, Details: []string{p.message}})
		}
	}
	for id, i := range rc.recorded.mine { // nothing is written
		rc.markReplaced(id, i.entries)
	}
	g, limited := rc.group(ctx)
	for _, k := range slices.SortedFunc(maps.Keys(rc.wanted.objects), compareKeys) {
		o := rc.wanted.objects[k]
		g.Go(func() error {
			change, err := rc.compareObject(limited, o, actions[k])
			if err != nil {
				if limited.Err() != nil || isUnreachable(err) {
					return err
				}
				change.Verb, change.Details = tko.SiteBlocked, []string{rc.rejection(o, err).message}
			}
			if change.Verb != "" {
				rc.mu.Lock()
				defer rc.mu.Unlock()
				all = append(all, change)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	rc.pruning = unwanted(rc.recorded, rc.wanted, rc.stays, rc.live)
	rc.retainUnreadable()
	for _, r := range rc.pruning.remove {
		all = append(all, tko.SiteChange{Verb: tko.SiteRemove, Object: r.String(), Deployment: r.from[0]})
	}
	all = append(all, rc.compareReplaced()...)
	slices.SortStableFunc(all, func(a, b tko.SiteChange) int {
		return cmp.Or(cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Object, b.Object))
	})
	return all, nil
}

// compareObject compares one object with its desired state. The verb is empty if they
// are equal.
func (rc *reconciliation) compareObject(ctx context.Context, o *object, what action) (tko.SiteChange, error) {
	s := rc.states[o.key]
	change := tko.SiteChange{Object: o.String(), Deployment: o.deployment}
	blocked := func(why string) tko.SiteChange {
		change.Verb, change.Details = tko.SiteBlocked, []string{why}
		return change
	}
	switch {
	case s.problem != nil:
		return blocked(s.problem.message), nil
	case what == actionNone:
		return change, nil
	case what == actionWait:
		return blocked("is being removed"), nil
	case what == actionRestore:
		change.Verb = tko.SiteCreate
		return change, nil
	case o.chart != nil:
		change.Verb = tko.SiteUpdate
		if s.entry.Chart.Revision == 0 {
			change.Verb = tko.SiteCreate
		}
		return change, nil
	}
	live := s.live
	if live == nil {
		var err error
		if live, err = rc.conn.get(ctx, o.key, o.version); err != nil {
			return change, err
		}
	}
	if live == nil {
		change.Verb = tko.SiteCreate
		return change, nil
	}
	content := withIgnored(o.content, live, rc.ignored(o.key))
	if s.entry.Fields == "" && rc.isForeign(o, live) {
		content = withoutOwner(content)
		if (o.isNamespace() || o.isDefinition()) && containsAll(live.Object, content) {
			return change, nil // it is used as it is
		}
		change.Verb, change.Details = tko.SiteBlocked, []string{notOurs}
	}
	would, err := rc.conn.apply(ctx, o, content, true, true)
	if err != nil {
		return change, err
	}
	for _, d := range rc.differences(o, differences(live, would)) {
		change.Verb = cmp.Or(change.Verb, tko.SiteUpdate)
		change.Details = append(change.Details, bounded(d.String()))
	}
	return change, nil
}

// isForeign returns whether TKO doesn't apply an existing object unless it is adopted.
func (rc *reconciliation) isForeign(o *object, live *unstructured.Unstructured) bool {
	return o.annotation(AnnotationAdopt) != "true" && rc.sharingInventory(o, live) == nil && !rc.wasApplied(o, live)
}
