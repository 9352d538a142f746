package git

import (
	"github.com/tko-orchestrator/tko/krm"
)

// A written remembers the namespaces and definitions that deployments of a site
// have written already: kustomize refuses a folder that has an object twice.
type written map[krm.Identity]bool

// again says whether a resource is one of those, and was written before.
func (w written) again(r krm.Resource) bool {
	gvk, id := r.GVK(), r.Identity()
	shared := gvk.Group == "" && gvk.Kind == "Namespace" || gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
	if !shared || w == nil {
		return false
	}
	before := w[id]
	w[id] = true
	return before
}
