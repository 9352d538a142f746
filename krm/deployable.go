package krm

import (
	"fmt"
	"slices"
)

// Annotations that control which resources are deployed to sites.
const (
	AnnotationLocal  = "config.kubernetes.io/local-config" // true: for local tools, never deployed
	AnnotationDeploy = "nephio.org/deploy"                 // true: deployed although its group is nephio.org
)

// maxListDepth is the maximum nesting of lists in lists.
const maxListDepth = 8

// IsLocal reports whether a resource is never deployed to a site, because it is
// for local tools, or because its group is nephio.org, whose kinds no
// controller at a site handles.
func (r Resource) IsLocal() bool {
	if r.Annotation(AnnotationLocal) == "true" {
		return true
	}
	return r.GVK().Orchestration() && r.Annotation(AnnotationDeploy) != "true"
}

// Deployable returns the resources that may be deployed: the package without
// the resources for local tools, with the items of each v1 List in its place.
// It includes resources of nephio.org groups, because only the target knows
// whether it deploys or interprets them (see [Resource.IsLocal]). A malformed
// List stays as it is. The resources are shared with the package.
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

// Items returns the resources in a v1 List, nil for any other resource. An
// error names the List and the item that is not a resource.
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
