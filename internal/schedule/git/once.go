package git

import (
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A written has the files of namespaces and definitions that deployments of a site
// have written already: kustomize refuses a folder that has an object twice.
type written map[string]bool

// again says whether a resource is one of those, and was written before.
func (w written) again(r krm.Resource) bool {
	gvk := r.GVK()
	namespace := gvk.Group == "" && gvk.Kind == "Namespace"
	definition := gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
	if !namespace && !definition {
		return false
	}
	name := fileName(r.Identity())
	before := w[name]
	w[name] = true
	return before
}

// renderAll makes the objects of deployments, which come in the order of their
// IDs: the first of them writes what all may have.
func renderAll(deployments []tko.Deployment, before written) ([]rendered, error) {
	all := make([]rendered, 0, len(deployments))
	for _, d := range deployments {
		one, err := render(d, before)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// beside renders what is wanted beside deployments that stay as they are: what
// these have written needn't be written.
func (r *request) beside(f *folder, before inventory) error {
	w := written{}
	for _, id := range r.held {
		if _, ok := before.Deployments[id]; !ok {
			continue
		}
		kept, err := f.at(deploymentFolder(id) + "/" + clusterFolder)
		if errors.Is(err, errNotFolder) {
			continue
		}
		if err != nil {
			return err
		}
		for name := range kept.entries {
			w[name] = true
		}
	}
	all, err := renderAll(r.deployments, w)
	r.wanted = all
	return err
}
