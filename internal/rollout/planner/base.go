package planner

import (
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// mergeOf returns what was merged into a template's package, found out of the result as
// it was stored. Merging it again gives the same. Fields that were merged with the
// value that the template had are lost: then the template decides them.
func mergeOf(result, from krm.Package) krm.Package {
	from = from.WithoutDeploymentState()
	var merged krm.Package
	for _, r := range result.WithoutDeploymentState() {
		id := r.Identity()
		was := from.Find(id)
		deep := id.GVK == krm.DeploymentGVK || r.Annotation(krm.AnnotationMerge) == krm.Override
		switch {
		case was != nil && equalResources(withoutMarks(was), withoutMarks(r)):
		case was != nil && deep:
			d := krm.Resource(difference(was, r))
			d["apiVersion"], d["kind"] = r["apiVersion"], r["kind"]
			d.Set(r.Name(), "metadata", "name")
			if id.GVK != krm.DeploymentGVK {
				d.SetAnnotation(krm.AnnotationMerge, krm.Override)
			}
			merged = append(merged, d)
		default:
			merged = append(merged, r)
		}
	}
	return merged
}

func withoutMarks(r krm.Resource) krm.Resource {
	return merge.WithoutBookkeeping(krm.Package{r})[0]
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
