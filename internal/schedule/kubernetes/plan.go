package kubernetes

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// An action is the next step for a wanted object.
type action int

const (
	actionNone    action = iota // the object is as it was applied
	actionApply                 // apply a new or changed object
	actionCompare               // another client may have changed it: compare it
	actionRestore               // another client removed it
	actionWait                  // it is being removed: its replacement is applied later
)

// actionOn decides on an action from an object's recorded entry and its observed
// state.
func actionOn(o *object, e entry, recorded bool, live *unstructured.Unstructured, drift string) action {
	removed := live == nil || live.GetDeletionTimestamp() != nil
	switch {
	case removed && e.Completed && e.Digest == o.digest:
		return actionNone
	case live != nil && removed:
		return actionWait
	case !recorded || e.Digest != o.digest:
		return actionApply
	case drift == trigger.DriftIgnore:
		return actionNone
	case live == nil:
		return actionRestore
	case e.Found: // TKO does not own it: its owner may change it
		return actionNone
	case fieldsOf(live) != e.Fields:
		return actionCompare
	default:
		return actionNone
	}
}

// A removal is a recorded object that no deployment wants any more.
type removal struct {
	key
	entry
	from []tko.DeploymentID // the deployments whose inventories have it
}

// A pruning is the plan for recorded objects that are not wanted.
type pruning struct {
	remove   []removal // in the order of removal
	forget   []removal // entries to delete from the inventories: the object was deleted, is not to be removed, or belongs to another owner
	foreign  foreign   // objects of other owners that would be deleted with their namespaces
	approval string    // digest that approves remove, which is beyond the budget; empty if remove is within it
}

// unwanted plans the pruning of recorded objects that are not wanted. It retains the
// objects of frozen deployments.
func unwanted(recorded inventories, w wanted, frozen func(tko.DeploymentID) bool, live map[key]*unstructured.Unstructured) pruning {
	var p pruning
	found := map[key]*removal{}
	for id, i := range recorded.mine {
		mine := map[key]bool{}
		for _, k := range w.of[id] {
			mine[k] = true
		}
		for k, e := range i.entries {
			// Helm already removed the objects that the new version of a release
			// lacks.
			upgraded := e.Release != (key{}) && w.objects[e.Release] != nil
			if mine[k] || frozen(id) && !upgraded {
				continue
			}
			if _, ok := w.objects[k]; ok { // another deployment has it
				p.forget = append(p.forget, removal{key: k, entry: e, from: []tko.DeploymentID{id}})
				continue
			}
			if found[k] == nil {
				found[k] = &removal{key: k, entry: e}
			}
			found[k].from = append(found[k].from, id)
			found[k].Found = found[k].Found || e.Found
		}
	}
	retained := map[key]bool{} // objects of frozen deployments
	for id, i := range recorded.mine {
		for k := range i.entries {
			retained[k] = retained[k] || frozen(id)
		}
	}
	for k, r := range found {
		if _, others := recorded.owner(k); others || retained[k] || !removable(*r, live[k], recorded) {
			p.forget = append(p.forget, *r)
		} else {
			p.remove = append(p.remove, *r)
		}
	}
	p.followReleases()
	slices.SortFunc(p.remove, compareRemovals)
	return p
}

// removable returns whether an object exists, TKO owns it, and it may be removed.
func removable(r removal, live *unstructured.Unstructured, recorded inventories) bool {
	if live == nil || r.Found || krm.Resource(live.Object).Annotation(AnnotationPrune) == krm.Never {
		return false
	}
	label := live.GetLabels()[LabelDeployment]
	if label == "" {
		return r.Fields != "" && fieldsOf(live) != "" // the label was removed, but TKO still owns fields
	}
	if r.isNamespace() && r.Fields != "" && !recorded.has(tko.DeploymentID(label), r.key) {
		return fieldsOf(live) != "" // another site shared it, and no longer does
	}
	return slices.Contains(r.from, tko.DeploymentID(label))
}

// checkBudget requests an approval if the removals exceed the budget. It doesn't
// count removals that were approved before or are in progress.
func (p *pruning) checkBudget(s spec, total int, live map[key]*unstructured.Unstructured) {
	fresh := slices.DeleteFunc(slices.Clone(p.remove), func(r removal) bool {
		return r.Removing || live[r.key].GetDeletionTimestamp() != nil
	})
	more := len(p.foreign.objects)
	if len(p.foreign.unknown) == 0 && !s.Budget.Over(len(fresh)+more, total+more) {
		return
	}
	lines := make([]string, 0, len(fresh)+more)
	for _, r := range fresh {
		lines = append(lines, r.String())
	}
	if key := prune.Key(slices.Concat(lines, p.foreign.objects, p.foreign.unknown)); key != s.Approve {
		p.approval = key
	}
}
