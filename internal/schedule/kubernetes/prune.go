package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/krm"
)

// prune removes objects that are not wanted any more, the last step first. It removes
// the next objects of a deployment once the previous ones are deleted. If a deployment
// has the definitions of objects that still exist, its objects wait too: they may
// include the controller that finalizes them.
//
// If only is not nil, it selects what is removed, within a budget and an approval for all.
func (rc *reconciliation) prune(ctx context.Context, only func(removal) bool) (err error) {
	rc.pruning, rc.removing = unwanted(rc.recorded, rc.wanted, rc.stays, rc.live), nil
	rc.retainUnreadable()
	if rc.pruning.foreign, err = rc.foreignContents(ctx); err != nil {
		return err
	}
	rc.budgetBase = rc.recorded.settled(rc.pruning.remove)
	rc.pruning.checkBudget(rc.spec, rc.budgetBase, rc.live)
	remove := rc.pruning.remove
	if rc.pruning.approval != "" { // what was approved before, or is being removed, goes on
		waits := keysOf(rc.pruning.waiting)
		remove = slices.DeleteFunc(slices.Clone(remove), func(r removal) bool {
			return waits[r.key] || r.isNamespace() && r.Removing && rc.live[r.key].GetDeletionTimestamp() == nil // which may have got foreign objects since
		})
	}
	if only != nil {
		remove = slices.DeleteFunc(slices.Clone(remove), func(r removal) bool { return !only(r) })
	}
	if len(remove) == 0 {
		return nil
	}
	if found := rc.pruning.foreign.objects; len(found) > 0 && rc.pruning.approval == "" {
		rc.target.options.Log.InfoContext(ctx, "removing namespaces with foreign objects", "site", string(rc.site.ID), "objects", len(found), "first", firstFew(found, fewObjects))
	}
	if rc.pruning.approval == "" {
		if err := rc.recordApproval(ctx); err != nil {
			return err
		}
	}
	stuck := map[tko.DeploymentID]bool{}
	for rest := remove; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r removal) bool { return r.Step != rest[0].Step })
		if n < 0 {
			n = len(rest)
		}
		if err := rc.removeStep(ctx, rest[:n], stuck); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// retainUnreadable retains the entries of objects that can't be read, because their
// owners are unknown.
func (rc *reconciliation) retainUnreadable() {
	hidden := func(r removal) bool {
		return rc.unreadable[r.key] != "" && len(r.from) > 0 && rc.wanted.objects[r.key] == nil
	}
	for _, r := range rc.pruning.forget {
		if hidden(r) {
			rc.removing = append(rc.removing, fmt.Sprintf("%s: %s", r.key, rc.unreadable[r.key]))
		}
	}
	rc.pruning.forget = slices.DeleteFunc(rc.pruning.forget, hidden)
}

// recordApproval records that the removals were approved, so that the remaining ones
// need no approval of their own.
func (rc *reconciliation) recordApproval(ctx context.Context) error {
	if rc.spec.Approve == "" {
		return nil
	}
	marked := map[tko.DeploymentID]map[key]bool{}
	for _, r := range rc.pruning.remove {
		for _, id := range r.from {
			if marked[id] == nil {
				marked[id] = map[key]bool{}
			}
			marked[id][r.key] = true
		}
	}
	return rc.eachInventory(ctx, slices.Collect(maps.Keys(marked)), func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		for k := range marked[i.deployment] {
			e := next[k]
			e.Removing = true
			next[k] = e
		}
		return next
	})
}

// removeStep removes objects, except those of stuck deployments. It adds the
// deployments of objects that still exist to stuck.
func (rc *reconciliation) removeStep(ctx context.Context, step []removal, stuck map[tko.DeploymentID]bool) error {
	// Releases first, then objects in the reverse order of their application.
	charts := slices.IndexFunc(step, func(r removal) bool { return !r.isChart() })
	if charts < 0 {
		charts = len(step)
	}
	for _, batch := range append([][]removal{step[:charts]}, byRank(step[charts:], func(r removal) key { return r.key })...) {
		batch = slices.DeleteFunc(slices.Clone(batch), func(r removal) bool {
			return slices.ContainsFunc(r.from, func(id tko.DeploymentID) bool { return stuck[id] })
		})
		left, err := rc.removeBatch(ctx, batch)
		if err != nil {
			return err
		}
		for _, r := range left {
			for id, i := range rc.recorded.mine {
				if slices.Contains(r.from, id) || i.defines(r.Group) {
					stuck[id] = true
				}
			}
		}
	}
	return nil
}

// defines returns whether an inventory has the definition of a kind in a group.
func (i *inventory) defines(group string) bool {
	for k := range i.entries {
		if k.isDefinition() && group != "" && strings.HasSuffix(k.Name, "."+group) {
			return true
		}
	}
	return false
}

// removeBatch removes objects, and returns those that still exist.
func (rc *reconciliation) removeBatch(ctx context.Context, batch []removal) (left []removal, err error) {
	g, ctx := rc.group(ctx)
	after := map[key]*unstructured.Unstructured{} // recorded at the end: meanwhile others read what was live
	for _, r := range batch {
		g.Go(func() error {
			result, err := rc.removeOne(ctx, r)
			if err != nil {
				if ctx.Err() != nil || isUnreachable(err) || fence.Is(err) {
					return err
				}
				result.why = bounded(err.Error())
			}
			rc.mu.Lock()
			defer rc.mu.Unlock()
			if result.observed {
				after[r.key] = result.now
			}
			if result.why == "" {
				rc.pruning.forget = append(rc.pruning.forget, r)
				return nil
			}
			left = append(left, r)
			rc.removing = append(rc.removing, fmt.Sprintf("%s: %s", r.key, result.why))
			return nil
		})
	}
	err = g.Wait()
	maps.Copy(rc.live, after)
	slices.Sort(rc.removing)
	return left, err
}

// removed is the result of the removal of an object.
type removed struct {
	why      string                     // why the object still exists; empty if it doesn't
	now      *unstructured.Unstructured // the object afterwards, nil if it is gone
	observed bool                       // whether now is known
}

// removeOne removes an object. It is called for several at once.
func (rc *reconciliation) removeOne(ctx context.Context, r removal) (result removed, err error) {
	live := rc.live[r.key]
	switch {
	case r.isChart():
		return removed{}, rc.uninstall(ctx, r)
	case r.Release != (key{}):
		result.why, err = rc.leftoverOf(ctx, r)
		return result, err
	case r.isNamespace():
		if id := rc.namespaceUser(r.Name); id != "" {
			return removed{why: fmt.Sprintf("stays as long as deployment %q has objects in it", id)}, nil
		}
	case r.isDefinition():
		inUse, err := rc.inUse(ctx, live)
		if err != nil {
			return removed{}, err
		}
		if inUse {
			return removed{why: "stays as long as there are objects of its kind"}, nil
		}
	}
	if live.GetDeletionTimestamp() == nil {
		if err := rc.conn.remove(ctx, r.key, r.Version, live, rc.propagation(r)); err != nil {
			return removed{}, err
		}
		rc.removedCount.Add(1)
	}
	now, err := rc.conn.get(ctx, r.key, r.Version)
	if err != nil {
		return removed{}, err
	}
	result = removed{now: now, observed: true}
	if now != nil && now.GetUID() == live.GetUID() {
		result.why = "is being removed"
	}
	return result, nil
}

// namespaceUser returns a deployment that has, or wants, an object in a namespace;
// empty if there is none.
func (rc *reconciliation) namespaceUser(namespace string) tko.DeploymentID {
	toRemove := keysOf(rc.pruning.remove)
	for k, o := range rc.wanted.objects {
		if k.Namespace == namespace {
			return o.deployment
		}
	}
	for _, i := range slices.Concat(slices.Collect(maps.Values(rc.recorded.mine)), rc.recorded.others) {
		for k := range i.entries {
			if k.Namespace == namespace && !toRemove[k] {
				return i.deployment
			}
		}
	}
	return ""
}

// inUse returns whether objects of a definition's kind exist.
func (rc *reconciliation) inUse(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	r := krm.Resource(definition.Object)
	versions := servedVersions(definition)
	if len(versions) == 0 {
		return false, nil
	}
	at := schema.GroupVersionResource{Group: r.Text("spec", "group"), Version: versions[0], Resource: r.Text("spec", "names", "plural")}
	list, err := rc.conn.dynamic.Resource(at).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the objects of %s: %w", at, err)
	}
	return len(list.Items) > 0, nil
}

// record writes the inventories after the reconciliation, and collects the
// deployments that are removed completely.
func (rc *reconciliation) record(ctx context.Context) error {
	type place struct {
		id tko.DeploymentID
		k  key
	}
	dropped := map[place]bool{}
	for _, r := range rc.pruning.forget {
		for _, id := range r.from {
			dropped[place{id, r.key}] = true
		}
	}
	all := slices.Collect(maps.Keys(rc.recorded.mine))
	had := map[tko.DeploymentID]bool{}
	for _, id := range all {
		had[id] = rc.recorded.mine[id].resource != nil
	}
	err := rc.eachInventory(ctx, all, func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		maps.DeleteFunc(next, func(k key, _ entry) bool { return dropped[place{i.deployment, k}] })
		// Removal budgets don't count new objects while the objects that they replace
		// still exist.
		for k, e := range next {
			if e.Kept != "" && !rc.stays(i.deployment, e) { // it is being removed, and stays so
				e.Kept = ""
				next[k] = e
			}
		}
		unsettled := rc.pruning.approval != "" || rc.frozen(i.deployment) || rc.isReplacing(i.deployment)
		for _, k := range rc.wanted.of[i.deployment] {
			was, there := i.entries[k]
			e := rc.states[k].entry
			e.Completed = rc.states[k].completed() || expires(rc.states[k].live)
			e.New, e.Replaced = unsettled && (was.New || !there), 0
			next[k] = e
		}
		return next
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		if had[id] && len(rc.recorded.mine[id].entries) == 0 && !rc.isWanted(id) {
			rc.removed = append(rc.removed, id)
		}
	}
	return nil
}

func (rc *reconciliation) isWanted(id tko.DeploymentID) bool {
	return slices.ContainsFunc(rc.deployments, func(d tko.Deployment) bool { return d.ID == id })
}
