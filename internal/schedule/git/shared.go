package git

import (
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// sharedFiles has the names of the files of Namespaces and
// CustomResourceDefinitions that deployments of a site have written. Each is written
// once, because kustomize refuses a folder that has an object twice.
type sharedFiles map[string]bool

// add reports whether a resource is of one of these kinds and has a file. If it has
// none, add notes its file.
func (w sharedFiles) add(r krm.Resource) bool {
	if gvk := r.GVK(); !scope.IsShared(gvk.Group, gvk.Kind) {
		return false
	}
	name := fileName(r.Identity())
	before := w[name]
	w[name] = true
	return before
}

// renderAll renders deployments, which are ordered by ID: the first one that has a
// shared resource writes it.
func renderAll(deployments []tko.Deployment, before sharedFiles) ([]rendered, error) {
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

// renderWithHeld renders the wanted deployments of a site that has held ones: these
// have written some of the shared resources.
func (r *request) renderWithHeld(f *folder, before inventory) error {
	w := sharedFiles{}
	for _, id := range r.held {
		if _, ok := before.Deployments[id]; !ok {
			continue
		}
		cluster, err := f.at(deploymentFolder(id) + "/" + clusterFolder)
		if errors.Is(err, errNotFolder) {
			continue
		}
		if err != nil {
			return err
		}
		for name := range cluster.entries {
			w[name] = true
		}
	}
	all, err := renderAll(r.deployments, w)
	r.wanted = all
	return err
}
