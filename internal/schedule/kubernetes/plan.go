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

// A snapshot is what a reconciliation observed: decide depends on nothing else.
type snapshot struct {
	wanted     wanted
	recorded   inventories
	live       map[key]*unstructured.Unstructured // of the recorded objects
	unreadable map[key]string                     // by recorded object that cannot be read: the reason
	missing    map[key]bool                       // releases that don't exist; nil if releases were not read
	drift      string                             // the policy
}

// A decision has an action for each wanted object, and its state before the action.
type decision struct {
	actions map[key]action
	states  map[key]*state
	unread  []key // releases to read for another decision: their objects may have drifted
}

// decide chooses an action for each wanted object. It is pure: it accesses neither the
// cluster nor the reconciliation, and changes nothing that it is given.
func decide(seen snapshot) decision {
	d := decision{actions: make(map[key]action, len(seen.wanted.objects)), states: make(map[key]*state, len(seen.wanted.objects))}
	for k, o := range seen.wanted.objects {
		d.actions[k], d.states[k] = seen.decideOne(o)
	}
	d.decideReleases(seen)
	return d
}

// decideOne decides on an object alone.
func (seen snapshot) decideOne(o *object) (action, *state) {
	e, recorded := seen.recorded.entryOf(o.key)
	s := &state{live: seen.live[o.key], entry: e}
	if why := seen.unreadable[o.key]; why != "" {
		s.problem = newProblem(o.String(), false, "%s", why)
		return actionNone, s
	}
	what := actionOn(o, e, recorded, s.live, seen.drift)
	if !recorded || what == actionApply || what == actionWait && e.Digest != o.digest {
		// The new digest and fields are not known until it is applied; Fields
		// records that it was applied before.
		s.entry = entry{Version: o.version, Step: o.step, Fields: e.Fields, Found: e.Found}
	}
	if what == actionWait && (e.Digest != o.digest || seen.drift == trigger.DriftCorrect) {
		s.waits = recreating
	}
	if o.chart == nil {
		return what, s
	}
	s.entry.Chart, s.entry.Chart.Keep = e.Chart, o.keep
	if e.Chart.Revision == 0 {
		s.live = nil
	}
	if what == actionApply {
		s.entry.Digest, s.entry.Chart.Failed = "", ""
		return what, s
	}
	if e.Chart.Failed != "" {
		s.problem = newProblem(o.String(), true, "%s", e.Chart.RolledBack())
	}
	return actionNone, s
}

// decideReleases corrects the decisions on the objects of releases: they are applied only
// to correct drift, and only if their desired state was read. A release that no longer
// exists is installed again, if drift is to be corrected.
func (d *decision) decideReleases(seen snapshot) {
	for k, o := range seen.wanted.objects {
		what := d.actions[k]
		switch {
		case o.release == (key{}) || d.actions[o.release] == actionApply || what != actionCompare && what != actionRestore:
		case seen.missing == nil:
			if !slices.Contains(d.unread, o.release) {
				d.unread = append(d.unread, o.release)
			}
		case !seen.missing[o.release]:
		case seen.drift == trigger.DriftCorrect:
			s := d.states[o.release]
			d.actions[o.release], s.corrected, s.problem = actionApply, "was uninstalled", nil
			s.entry.Digest, s.entry.Chart.Failed = "", ""
		case what == actionRestore:
			d.states[k].drift = "is missing"
		}
	}
	for k, o := range seen.wanted.objects {
		if o.release != (key{}) && (d.actions[o.release] == actionApply || o.content == nil && d.actions[k] != actionWait) {
			d.actions[k] = actionNone
		}
	}
}

// A removal is a recorded object that no deployment wants any more.
type removal struct {
	key
	entry
	from []tko.DeploymentID // the deployments whose inventories have it
}

func keysOf(all []removal) map[key]bool {
	keys := make(map[key]bool, len(all))
	for _, r := range all {
		keys[r.key] = true
	}
	return keys
}

// A pruning is the plan for recorded objects that are not wanted.
type pruning struct {
	remove   []removal // in the order of removal
	forget   []removal // entries to delete from the inventories: the object was deleted, is not to be removed, or belongs to another owner
	foreign  foreign   // objects of other owners that would be deleted with their namespaces
	approval string    // digest that approves what waits; empty if nothing does
	over     bool      // the removals exceed the budget
	waiting  []removal // what waits: all new removals, if they are beyond the budget; or else namespaces with foreign objects
}

// unwanted plans the pruning of recorded objects that are not wanted. It retains the
// objects that stay for now.
func unwanted(recorded inventories, w wanted, stays func(tko.DeploymentID, entry) bool, live map[key]*unstructured.Unstructured) pruning {
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
			if mine[k] || stays(id, e) && !upgraded {
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
	retained := map[key]bool{}
	for id, i := range recorded.mine {
		for k, e := range i.entries {
			retained[k] = retained[k] || stays(id, e)
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

// isFresh returns whether a removal was not approved before, and is not in progress.
func (r removal) isFresh(live map[key]*unstructured.Unstructured) bool {
	return !r.Removing && live[r.key].GetDeletionTimestamp() == nil
}

// checkBudget requests an approval if the removals exceed the budget. It doesn't
// count removals that were approved before or are in progress. If they are within the budget, it
// requests an approval for the namespaces in which there are, or may be, foreign objects, which would
// be deleted too.
func (p *pruning) checkBudget(s spec, total int, live map[key]*unstructured.Unstructured) {
	fresh := slices.DeleteFunc(slices.Clone(p.remove), func(r removal) bool { return !r.isFresh(live) })
	more := len(p.foreign.objects)
	p.waiting, p.over = fresh, s.Budget.Over(len(fresh)+more, total+more)
	if !p.over {
		p.waiting = slices.DeleteFunc(fresh, func(r removal) bool { return !r.isNamespace() || !p.foreign.namespaces[r.Name] })
	}
	if len(p.waiting) == 0 {
		return
	}
	lines := make([]string, 0, len(p.waiting)+more)
	for _, r := range p.waiting {
		lines = append(lines, r.String())
	}
	if key := prune.Key(slices.Concat(lines, p.foreign.objects, p.foreign.unknown)); key != s.Approve {
		p.approval = key
		return
	}
	p.waiting = nil
}
