package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// clearTime bounds the wait for the removal of replaced objects with the order
// DeleteFirst, during which other deployments of the site wait, too. If it takes longer,
// the next reconciliation continues.
const clearTime = 2 * time.Second

// replaces are the objects that others replace: a deployment has had them and has new or
// changed ones now, or a deployment has had them that another one has replaced.
//
// With the order CreateFirst they stay until all objects of the deployment are healthy.
// The inventories record since when, before anything is applied, so that the next
// reconciliation knows it if this one dies. An object that a deployment loses without a
// change of others is not replaced: it is removed at once.
type replaces struct {
	by      map[tko.DeploymentID]tko.DeploymentID  // by deployment with an inventory: itself, or the deployment that has replaced it
	since   map[tko.DeploymentID]map[key]time.Time // by deployment with an inventory: its replaced objects
	changed map[tko.DeploymentID]bool              // deployments with new or changed objects

	restored []string                    // replaced objects that were applied again, because another client had deleted them
	begun    bool                        // whether deleteFirst was called
	clearing map[tko.DeploymentID]string // deployments that wait for the removal of what they replace, with the reason
}

// findReplaced finds the replaced objects.
func (rc *reconciliation) findReplaced(actions map[key]action) {
	rc.replaces = replaces{
		by: map[tko.DeploymentID]tko.DeploymentID{}, since: map[tko.DeploymentID]map[key]time.Time{},
		changed: map[tko.DeploymentID]bool{}, clearing: map[tko.DeploymentID]string{},
	}
	if rc.spec.Replace.Order == "" {
		return
	}
	for _, d := range rc.deployments {
		rc.replaces.by[d.ID] = d.ID
		rc.replaces.changed[d.ID] = slices.ContainsFunc(rc.wanted.of[d.ID], func(k key) bool { return actions[k] == actionApply })
	}
	for _, d := range rc.deployments {
		for _, old := range d.Replaced {
			if rc.replaces.by[old] == "" {
				rc.replaces.by[old] = d.ID
			}
		}
	}
	for id, i := range rc.recorded.mine {
		by := rc.replaces.by[id]
		for k, e := range i.entries {
			upgraded := e.Release != (key{}) && rc.wanted.objects[e.Release] != nil // Helm removes it
			if by == "" || e.Found || upgraded || rc.wanted.objects[k] != nil || e.Replaced == 0 && id == by && !rc.replaces.changed[id] {
				continue
			}
			if rc.replaces.since[id] == nil {
				rc.replaces.since[id] = map[key]time.Time{}
			}
			rc.replaces.since[id][k] = time.Unix(cmp.Or(e.Replaced, rc.started.Unix()), 0)
		}
	}
}

// markReplaced marks the replaced objects among the entries of a deployment's inventory.
func (rc *reconciliation) markReplaced(id tko.DeploymentID, entries map[key]entry) {
	for k, since := range rc.replaces.since[id] {
		if e, ok := entries[k]; ok {
			e.Replaced = since.Unix()
			entries[k] = e
		}
	}
	rc.keepContents(id, entries)
}

// replaceOrder returns the order of a deployment's replacements.
func (rc *reconciliation) replaceOrder(id tko.DeploymentID) string {
	for _, d := range rc.deployments {
		if order := d.Metadata[trigger.MetadataReplace]; d.ID == id && trigger.IsReplaceOrder(order) {
			return order
		}
	}
	return rc.spec.Replace.Order
}

// checkReplaceOrders reports metadata that is not an order.
func (rc *reconciliation) checkReplaceOrders() {
	for _, d := range rc.deployments {
		if order, ok := d.Metadata[trigger.MetadataReplace]; ok && !trigger.IsReplaceOrder(order) {
			rc.wanted.problems[d.ID] = append(rc.wanted.problems[d.ID], newProblem("metadata "+trigger.MetadataReplace, true,
				"%.200q is neither %s nor %s: correct it, or remove it to have the order of the Cluster resource", order, trigger.CreateFirst, trigger.DeleteFirst))
		}
	}
}

// stays returns whether an object that the inventory of a deployment has, and that no
// deployment wants, stays for now.
func (rc *reconciliation) stays(id tko.DeploymentID, e entry) bool {
	return rc.frozen(id) || e.Replaced != 0 && rc.keepsReplaced(rc.replaces.by[id])
}

// keepsReplaced returns whether the objects that a deployment replaces stay, because not
// all of its own are healthy.
func (rc *reconciliation) keepsReplaced(id tko.DeploymentID) bool {
	return id != "" && rc.replaceOrder(id) == trigger.CreateFirst && rc.incomplete(id) != ""
}

// incomplete returns why the objects of a deployment are not all as they should be, and
// healthy; empty if they are.
func (rc *reconciliation) incomplete(id tko.DeploymentID) string {
	if problems := rc.wanted.problems[id]; len(problems) > 0 {
		return problems[0].object + ": " + problems[0].message
	}
	if why := cmp.Or(rc.blocked[id], rc.replaces.clearing[id]); why != "" {
		return why
	}
	for _, k := range rc.wanted.of[id] {
		if why := rc.unreached(k); why != "" {
			return fmt.Sprintf("%s: %s", k, why)
		}
	}
	return ""
}

// unreached returns why a wanted object is not in its desired state, and healthy; empty if
// it is.
func (rc *reconciliation) unreached(k key) string {
	why := rc.unready(k)
	if why == "" && rc.states[k].entry.Digest != rc.wanted.objects[k].digest {
		why = "it is not applied yet"
	}
	return why
}

// replacedObjects returns the existing objects that a deployment replaces, sorted, and since
// when the first one waits.
func (rc *reconciliation) replacedObjects(by tko.DeploymentID) (names []key, since time.Time) {
	found := map[key]bool{}
	for id, objects := range rc.replaces.since {
		if rc.replaces.by[id] != by {
			continue
		}
		for k, at := range objects {
			found[k] = rc.live[k] != nil
			if found[k] && (since.IsZero() || at.Before(since)) {
				since = at
			}
		}
	}
	maps.DeleteFunc(found, func(_ key, exists bool) bool { return !exists })
	return slices.SortedFunc(maps.Keys(found), compareKeys), since
}

// isReplacing returns whether objects that a deployment replaces stay for now, or are
// removed before it is applied.
func (rc *reconciliation) isReplacing(id tko.DeploymentID) bool {
	if rc.replaces.clearing[id] != "" {
		return true
	}
	if !rc.keepsReplaced(id) {
		return false
	}
	found, _ := rc.replacedObjects(id)
	return len(found) > 0
}

// replacing returns the outcome of a deployment that isReplacing.
func (rc *reconciliation) replacing(id tko.DeploymentID) report.Outcome {
	v := report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonReplacing, Message: rc.replaces.clearing[id]}
	if v.Message != "" {
		return v
	}
	found, since := rc.replacedObjects(id)
	names := firstFew(texts(found), fewObjects)
	v.Message = fmt.Sprintf("%d objects that it replaces stay until all of its own are healthy: %s", len(found), names)
	if again := rc.replaces.restored; len(again) > 0 {
		v.Message += fmt.Sprintf("; another client had deleted %d of them, which were applied again: %s", len(again), firstFew(again, fewObjects))
	}
	if rc.overdue(since) > 0 {
		return v
	}
	v.Reason = trigger.ReasonOverdue
	v.Message = fmt.Sprintf("%d objects that it replaces stay, for longer than %s now, because its own are not all healthy: %s. Correct the deployment; "+
		"or, if the old and the new objects can't run at the same time, set its metadata %s: %s (they are: %s)",
		len(found), rc.spec.Replace.Timeout, rc.incomplete(id), trigger.MetadataReplace, trigger.DeleteFirst, names)
	return v
}

// overdue returns the time until a replacement is overdue.
func (rc *reconciliation) overdue(since time.Time) time.Duration {
	return since.Add(rc.spec.Replace.Timeout).Sub(rc.started)
}

// nextOverdue returns the time until the next replacement is overdue; 0 if none will be.
func (rc *reconciliation) nextOverdue() (next time.Duration) {
	for _, d := range rc.deployments {
		if !rc.isReplacing(d.ID) {
			continue
		}
		_, since := rc.replacedObjects(d.ID)
		if left := rc.overdue(since); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}

// texts returns keys as texts.
func texts(keys []key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.String()
	}
	return all
}

// compareReplaced returns the removals that wait until the objects of a deployment are
// healthy.
func (rc *reconciliation) compareReplaced() (all []tko.SiteChange) {
	for _, d := range rc.deployments {
		if !rc.isReplacing(d.ID) {
			continue
		}
		found, _ := rc.replacedObjects(d.ID)
		for _, k := range found {
			all = append(all, tko.SiteChange{Verb: tko.SiteRemove, Object: k.String(), Deployment: d.ID, Details: []string{"once all objects of the deployment are healthy"}})
		}
	}
	return all
}

// goesFirst returns whether a replaced object is removed before the new ones are created:
// not namespaces and definitions, which others may need.
func (rc *reconciliation) goesFirst(id tko.DeploymentID, k key) bool {
	by := rc.replaces.by[id]
	return by != "" && rc.replaces.changed[by] && rc.blocked[by] == "" && !k.isNamespace() && !k.isDefinition() && rc.replaceOrder(by) == trigger.DeleteFirst
}

// firstToGo returns the existing replaced objects that are removed before new ones are
// created, by the deployment that waits for it.
func (rc *reconciliation) firstToGo() map[tko.DeploymentID][]key {
	all := map[tko.DeploymentID][]key{}
	for id, objects := range rc.replaces.since {
		by := rc.replaces.by[id]
		for k := range objects {
			if rc.live[k] != nil && rc.goesFirst(id, k) && !slices.Contains(all[by], k) {
				all[by] = append(all[by], k)
			}
		}
	}
	return all
}

// deleteFirst removes the replaced objects with the order DeleteFirst, and waits for a short
// time until they are gone. Their deployments are not applied before that.
func (rc *reconciliation) deleteFirst(ctx context.Context) error {
	if rc.replaces.begun {
		return nil
	}
	rc.replaces.begun = true
	if len(rc.firstToGo()) == 0 {
		return nil
	}
	doomed := func(r removal) bool {
		return !slices.ContainsFunc(r.from, func(id tko.DeploymentID) bool { return !rc.goesFirst(id, r.key) })
	}
	deadline := time.Now().Add(clearTime)
	for again := true; again && len(rc.firstToGo()) > 0; {
		if err := rc.prune(ctx, doomed); err != nil {
			return err
		}
		var err error
		if again, err = rc.awaitGone(ctx, deadline); err != nil {
			return err
		}
	}
	for by, left := range rc.firstToGo() {
		slices.SortFunc(left, compareKeys)
		why := "which is not done yet"
		if rc.pruning.approval != "" {
			why = "which waits for an approval: the condition " + tko.ConditionRemovalsApproved + " of the site says how to give it"
		}
		rc.replaces.clearing[by] = fmt.Sprintf("it is applied after the removal of the %d objects that it replaces, %s: %s", len(left), why, firstFew(texts(left), fewObjects))
	}
	return nil
}

// awaitGone waits until the objects that are being removed first are gone, or until the
// deadline. It returns whether there is a reason to continue the removal: some of them are
// gone.
func (rc *reconciliation) awaitGone(ctx context.Context, deadline time.Time) (some bool, err error) {
	for {
		waiting := false
		for _, left := range rc.firstToGo() {
			for _, k := range left {
				if rc.live[k].GetDeletionTimestamp() == nil {
					continue
				}
				now, err := rc.conn.get(ctx, k, rc.live[k].GroupVersionKind().Version)
				if err != nil {
					return false, err
				}
				rc.recordLive(k, now)
				some, waiting = some || now == nil, waiting || now != nil
			}
		}
		if !waiting || time.Now().After(deadline) {
			return some && !waiting, nil
		}
		if err := pause.For(ctx, settlePause); err != nil {
			return false, err
		}
	}
}

// propagation returns how the cluster removes what depends on an object. What is removed
// before new objects are created must be gone with its pods, which the cluster then removes
// first.
func (rc *reconciliation) propagation(r removal) metav1.DeletionPropagation {
	dependents := r.Group != "" || r.Kind == "Pod" || r.Kind == "ReplicationController"
	if dependents && slices.ContainsFunc(r.from, func(id tko.DeploymentID) bool { return rc.goesFirst(id, r.key) }) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}
