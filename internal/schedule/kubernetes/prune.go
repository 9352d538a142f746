package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// prune removes what is not wanted any more, the last step first. A deployment's
// next objects go when those before are gone; so do the objects of a deployment
// that brought the definitions of these, for it may have what finalizes them.
func (l *look) prune(ctx context.Context) (err error) {
	l.pruning = unwanted(l.recorded, l.wanted, l.frozen, l.live)
	l.spare()
	if l.pruning.foreign, err = l.contents(ctx); err != nil {
		return err
	}
	l.had = l.recorded.settled(l.pruning.remove)
	l.pruning.charge(l.spec, l.had, l.live)
	if l.pruning.ask != "" || len(l.pruning.remove) == 0 {
		return nil
	}
	if found := l.pruning.foreign.objects; len(found) > 0 {
		l.target.options.Log.InfoContext(ctx, "namespaces are removed with foreign objects", "site", string(l.site.ID), "objects", len(found), "first", firstFew(found, fewObjects))
	}
	if err := l.mark(ctx); err != nil {
		return err
	}
	stuck := map[tko.DeploymentID]bool{}
	for rest := l.pruning.remove; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(r removal) bool { return r.Step != rest[0].Step })
		if n < 0 {
			n = len(rest)
		}
		if err := l.removeStep(ctx, rest[:n], stuck); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// spare keeps what can't be looked at: nobody knows whose it is.
func (l *look) spare() {
	hidden := func(r removal) bool {
		return l.unseen[r.key] != "" && len(r.from) > 0 && l.wanted.objects[r.key] == nil
	}
	for _, r := range l.pruning.drop {
		if hidden(r) {
			l.leaving = append(l.leaving, fmt.Sprintf("%s: %s", r.key, l.unseen[r.key]))
		}
	}
	l.pruning.drop = slices.DeleteFunc(l.pruning.drop, hidden)
}

// mark records that a removal was approved, so that what is left of it needs no
// approval of its own.
func (l *look) mark(ctx context.Context) error {
	if l.spec.Approve == "" {
		return nil
	}
	marked := map[tko.DeploymentID]map[key]bool{}
	for _, r := range l.pruning.remove {
		for _, id := range r.from {
			if marked[id] == nil {
				marked[id] = map[key]bool{}
			}
			marked[id][r.key] = true
		}
	}
	return l.eachInventory(ctx, slices.Collect(maps.Keys(marked)), func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		for k := range marked[i.deployment] {
			e := next[k]
			e.Removing = true
			next[k] = e
		}
		return next
	})
}

// removeStep removes objects, except for those of stuck deployments, to which it
// adds the deployments of objects that aren't gone yet.
func (l *look) removeStep(ctx context.Context, step []removal, stuck map[tko.DeploymentID]bool) error {
	// Releases first, and then what was applied last.
	charts := slices.IndexFunc(step, func(r removal) bool { return !r.isChart() })
	if charts < 0 {
		charts = len(step)
	}
	for _, batch := range append([][]removal{step[:charts]}, byRank(step[charts:], func(r removal) key { return r.key })...) {
		batch = slices.DeleteFunc(slices.Clone(batch), func(r removal) bool {
			return slices.ContainsFunc(r.from, func(id tko.DeploymentID) bool { return stuck[id] })
		})
		left, err := l.removeBatch(ctx, batch)
		if err != nil {
			return err
		}
		for _, r := range left {
			for id, i := range l.recorded.mine {
				if slices.Contains(r.from, id) || i.defines(r.Group) {
					stuck[id] = true
				}
			}
		}
	}
	return nil
}

// defines says whether an inventory has a definition of a kind of a group.
func (i *inventory) defines(group string) bool {
	for k := range i.entries {
		if k.isDefinition() && group != "" && strings.HasSuffix(k.Name, "."+group) {
			return true
		}
	}
	return false
}

// removeBatch removes objects, and returns those that aren't gone yet.
func (l *look) removeBatch(ctx context.Context, batch []removal) (left []removal, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.target.options.Parallel)
	for _, r := range batch {
		g.Go(func() error {
			why, err := l.removeOne(ctx, r)
			if err != nil {
				if ctx.Err() != nil || isAway(err) {
					return err
				}
				why = bounded(err.Error())
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if why == "" {
				l.pruning.drop = append(l.pruning.drop, r)
				return nil
			}
			left = append(left, r)
			l.leaving = append(l.leaving, fmt.Sprintf("%s: %s", r.key, why))
			return nil
		})
	}
	err = g.Wait()
	slices.Sort(l.leaving)
	return left, err
}

// removeOne removes an object, and says why it isn't gone yet.
func (l *look) removeOne(ctx context.Context, r removal) (why string, err error) {
	live := l.live[r.key]
	switch {
	case r.isChart():
		return "", l.uninstall(ctx, r)
	case r.Release != (key{}):
		return l.left(ctx, r)
	case r.isNamespace():
		if id := l.inhabitant(r.Name); id != "" {
			return fmt.Sprintf("stays as long as deployment %q has something in it", id), nil
		}
	case r.isDefinition():
		inUse, err := l.inUse(ctx, live)
		if err != nil {
			return "", err
		}
		if inUse {
			return "stays as long as there are objects of its kind", nil
		}
	}
	if live.GetDeletionTimestamp() == nil {
		if err := l.conn.remove(ctx, r.key, r.Version, live); err != nil {
			return "", err
		}
		l.gone.Add(1)
	}
	now, err := l.conn.get(ctx, r.key, r.Version)
	if err != nil {
		return "", err
	}
	if now != nil && now.GetUID() == live.GetUID() {
		return "is being removed", nil
	}
	return "", nil
}

// inhabitant is a deployment that has, or wants, an object in a namespace, if
// any.
func (l *look) inhabitant(namespace string) tko.DeploymentID {
	going := map[key]bool{}
	for _, r := range l.pruning.remove {
		going[r.key] = true
	}
	for k, o := range l.wanted.objects {
		if k.Namespace == namespace {
			return o.deployment
		}
	}
	for _, i := range slices.Concat(slices.Collect(maps.Values(l.recorded.mine)), l.recorded.others) {
		for k := range i.entries {
			if k.Namespace == namespace && !going[k] {
				return i.deployment
			}
		}
	}
	return ""
}

// inUse says whether there are objects of the kind of a definition.
func (l *look) inUse(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	r := krm.Resource(definition.Object)
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		name, _ := version["name"].(string)
		at := schema.GroupVersionResource{Group: r.Text("spec", "group"), Version: name, Resource: r.Text("spec", "names", "plural")}
		list, err := l.conn.dynamic.Resource(at).List(ctx, metav1.ListOptions{Limit: 1})
		if isGone(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking for objects of %s: %w", at, err)
		}
		return len(list.Items) > 0, nil
	}
	return false, nil
}

// record writes down what is there now.
func (l *look) record(ctx context.Context) error {
	type place struct {
		id tko.DeploymentID
		k  key
	}
	dropped := map[place]bool{}
	for _, r := range l.pruning.drop {
		for _, id := range r.from {
			dropped[place{id, r.key}] = true
		}
	}
	all := slices.Collect(maps.Keys(l.recorded.mine))
	had := map[tko.DeploymentID]bool{}
	for _, id := range all {
		had[id] = l.recorded.mine[id].resource != nil
	}
	err := l.eachInventory(ctx, all, func(i *inventory) map[key]entry {
		next := maps.Clone(i.entries)
		maps.DeleteFunc(next, func(k key, _ entry) bool { return dropped[place{i.deployment, k}] })
		// As long as what was there before stays for it.
		unsettled := l.pruning.ask != "" || l.frozen(i.deployment)
		for _, k := range l.wanted.of[i.deployment] {
			was, there := i.entries[k]
			e := l.states[k].entry
			e.Over = l.states[k].over() || expires(l.states[k].live)
			e.New = unsettled && (was.New || !there)
			next[k] = e
		}
		return next
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		if had[id] && len(l.recorded.mine[id].entries) == 0 && !l.isWanted(id) {
			l.removed = append(l.removed, id)
		}
	}
	return nil
}

func (l *look) isWanted(id tko.DeploymentID) bool {
	return slices.ContainsFunc(l.deployments, func(d tko.Deployment) bool { return d.ID == id })
}
