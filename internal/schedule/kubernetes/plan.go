package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// An action is what to do about an object that is wanted.
type action int

const (
	leave   action = iota // it is as it was applied
	bring                 // it is new, or changed: apply it
	suspect               // somebody else changed it, maybe: compare it
	restore               // somebody else removed it
	await                 // it is being removed: what takes its place comes later
)

// actionOn decides from what is recorded of an object and what is there.
func actionOn(o *object, e entry, recorded bool, live *unstructured.Unstructured, drift string) action {
	removed := live == nil || live.GetDeletionTimestamp() != nil
	switch {
	case removed && e.Over && e.Digest == o.digest:
		return leave
	case live != nil && removed:
		return await
	case !recorded || e.Digest != o.digest:
		return bring
	case drift == driftIgnore:
		return leave
	case live == nil:
		return restore
	case e.Found: // TKO does not own it: its owner may change it
		return leave
	case fieldsOf(live) != e.Fields:
		return suspect
	default:
		return leave
	}
}

// A removal is an object that nobody wants any more.
type removal struct {
	key
	entry
	from []tko.DeploymentID // whose inventories have it
}

// A pruning says what becomes of what is recorded and not wanted.
type pruning struct {
	remove  []removal // in this order
	drop    []removal // to be forgotten: gone, to be kept, or somebody else's by now
	foreign foreign   // what would go with namespaces, though TKO did not make it
	ask     string    // if not empty: remove is beyond the budget, and this approves it
}

// unwanted finds what is recorded and not wanted. What frozen deployments have
// stays.
func unwanted(recorded inventories, w wanted, frozen func(tko.DeploymentID) bool, live map[key]*unstructured.Unstructured) pruning {
	var p pruning
	found := map[key]*removal{}
	for id, i := range recorded.mine {
		mine := map[key]bool{}
		for _, k := range w.of[id] {
			mine[k] = true
		}
		for k, e := range i.entries {
			// Helm has removed already what a release that was upgraded lost.
			upgraded := e.Release != (key{}) && w.objects[e.Release] != nil
			if mine[k] || frozen(id) && !upgraded {
				continue
			}
			if _, ok := w.objects[k]; ok { // another deployment has it
				p.drop = append(p.drop, removal{key: k, entry: e, from: []tko.DeploymentID{id}})
				continue
			}
			if found[k] == nil {
				found[k] = &removal{key: k, entry: e}
			}
			found[k].from = append(found[k].from, id)
			found[k].Found = found[k].Found || e.Found
		}
	}
	kept := map[key]bool{} // by a frozen deployment
	for id, i := range recorded.mine {
		for k := range i.entries {
			kept[k] = kept[k] || frozen(id)
		}
	}
	for k, r := range found {
		if _, others := recorded.owner(k); others || kept[k] || !removable(*r, live[k], recorded) {
			p.drop = append(p.drop, *r)
		} else {
			p.remove = append(p.remove, *r)
		}
	}
	p.followReleases()
	slices.SortFunc(p.remove, compareRemovals)
	return p
}

// removable says whether an object is there, is ours and may go.
func removable(r removal, live *unstructured.Unstructured, recorded inventories) bool {
	if live == nil || r.Found || krm.Resource(live.Object).Annotation(AnnotationPrune) == krm.Never {
		return false
	}
	label := live.GetLabels()[LabelDeployment]
	if label == "" {
		return r.Fields != "" && fieldsOf(live) != "" // somebody took the label off, but it is ours
	}
	if r.isNamespace() && r.Fields != "" && !recorded.has(tko.DeploymentID(label), r.key) {
		return fieldsOf(live) != "" // another site shared it, and has let go of it
	}
	return slices.Contains(r.from, tko.DeploymentID(label))
}

// charge asks for approval if more would be removed than the budget allows.
// What was approved before, or is on its way out, isn't counted again.
func (p *pruning) charge(s spec, total int, live map[key]*unstructured.Unstructured) {
	fresh := slices.DeleteFunc(slices.Clone(p.remove), func(r removal) bool {
		return r.Removing || live[r.key].GetDeletionTimestamp() != nil
	})
	more := len(p.foreign.objects)
	if len(p.foreign.unknown) == 0 && !s.Budget.over(len(fresh)+more, total+more) {
		return
	}
	hash := sha256.New()
	for _, r := range fresh {
		_, _ = fmt.Fprintln(hash, r.key)
	}
	for _, name := range slices.Concat(p.foreign.objects, p.foreign.unknown) {
		_, _ = fmt.Fprintln(hash, name)
	}
	if digest := hex.EncodeToString(hash.Sum(nil))[:12]; digest != s.Approve {
		p.ask = digest
	}
}
