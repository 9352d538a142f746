package planner

import (
	"fmt"

	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// rebased returns what a new template gives with the merge of a deployment's creation,
// without bookkeeping. first is what the old template gave with it, as it was stored.
// The notes name the resources that the merge replaces, so that changes of the template
// have no effect on them.
func rebased(first, from, to krm.Package) (edit krm.Package, notes []string) {
	from, edit = merge.WithoutBookkeeping(from), merge.WithoutBookkeeping(to)
	deep := map[krm.Identity]bool{}
	for _, r := range first {
		deep[r.Identity()] = r.GVK() == krm.DeploymentGVK || r.Annotation(krm.AnnotationMerge) == krm.Override
	}
	for _, r := range merge.WithoutBookkeeping(first) {
		id := r.Identity()
		was := from.Find(id)
		if was != nil && equalResources(was, r) {
			continue // the template's alone
		}
		at := edit.Index(id)
		switch {
		case at < 0:
			edit = append(edit, r) // the merge gives it
		case was != nil && deep[id]:
			edit[at] = krm.Resource(overlay(edit[at], difference(was, r)))
		default:
			if was == nil || !equalResources(edit[at], was) {
				notes = append(notes, fmt.Sprintf("%s: hidden by merge: the deployment was created with this resource in place of the template's", id))
			}
			edit[at] = r
		}
	}
	return edit, notes
}

func equalResources(a, b krm.Resource) bool {
	return merge.Equal(merge.Value{V: map[string]any(a), Present: true}, merge.Value{V: map[string]any(b), Present: true})
}

// difference returns the fields in which a resource differs from another one.
func difference(was, is map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range is {
		w, ok := was[key]
		vm, okV := v.(map[string]any)
		wm, okW := w.(map[string]any)
		switch {
		case okV && okW:
			if inner := difference(wm, vm); len(inner) > 0 {
				out[key] = inner
			}
		case !ok || !merge.Equal(merge.Value{V: v, Present: true}, merge.Value{V: w, Present: true}):
			out[key] = v
		}
	}
	return out
}

// overlay merges maps deeply without changing either.
func overlay(base, over map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(over))
	for key, v := range base {
		out[key] = v
	}
	for key, v := range over {
		b, okB := out[key].(map[string]any)
		o, okO := v.(map[string]any)
		if okB && okO {
			out[key] = overlay(b, o)
		} else {
			out[key] = v
		}
	}
	return out
}
