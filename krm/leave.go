package krm

import (
	"fmt"
	"slices"
)

// Annotations that say what leaves TKO.
const (
	AnnotationLocal  = "config.kubernetes.io/local-config" // true: it is for tools, and never leaves
	AnnotationDeploy = "nephio.org/deploy"                 // true: it leaves though its group is nephio.org's
)

// maxListDepth bounds lists in lists.
const maxListDepth = 8

// IsLocal says whether a resource is never handed to a site: it is for local
// tools, or it is orchestration that nothing at the site watches.
func (r Resource) IsLocal() bool {
	if r.Annotation(AnnotationLocal) == "true" {
		return true
	}
	return r.GVK().Orchestration() && r.Annotation(AnnotationDeploy) != "true"
}

// Deployable returns what may leave TKO: the package without the resources for
// local tools, with the items of each v1 List in its place. Resources of
// nephio.org groups are in it: whether such a resource goes to a site, or is
// read by what schedules there, is known at the target (see
// [Resource.IsLocal]). A List that is malformed stays as it is. The resources
// are shared with the package.
func (p Package) Deployable() Package {
	plain := func(r Resource) bool { return r.Annotation(AnnotationLocal) != "true" && !r.isList() }
	if !slices.ContainsFunc(p, func(r Resource) bool { return !plain(r) }) {
		return p
	}
	return p.leaving(make(Package, 0, len(p)), maxListDepth)
}

func (p Package) leaving(to Package, depth int) Package {
	for _, r := range p {
		if r.Annotation(AnnotationLocal) == "true" {
			continue
		}
		if items, err := r.Items(); r.isList() && err == nil && depth > 0 {
			to = items.leaving(to, depth-1)
			continue
		}
		to = append(to, r)
	}
	return to
}

func (r Resource) isList() bool {
	return r.GVK() == GVK{Version: "v1", Kind: "List"}
}

// Items returns the resources in a v1 List, nil for any other resource. An error
// names the List and what in it is no resource.
func (r Resource) Items() (Package, error) {
	value, ok := r["items"]
	if !r.isList() || !ok || value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: items is %s: write a list of resources", r.Identity(), describe(value))
	}
	items := make(Package, len(list))
	for i, v := range list {
		item, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: items[%d] is %s: write a resource", r.Identity(), i, describe(v))
		}
		if gvk := Resource(item).GVK(); gvk.Kind == "" || gvk.Version == "" {
			return nil, fmt.Errorf("%s: items[%d] has no apiVersion or no kind: write a resource", r.Identity(), i)
		}
		items[i] = item
	}
	return items, nil
}
