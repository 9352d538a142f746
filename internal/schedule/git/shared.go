package git

import (
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
)

// renderAll renders deployments, which are ordered by ID: the first one that has a
// shared resource writes it. The caller has checked that shared resources are equal.
func renderAll(deployments []tko.Deployment, before layout.Written) ([]rendered, error) {
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
	w := layout.Written{}
	for _, id := range r.held {
		if _, ok := before.Deployments[id]; !ok {
			continue
		}
		if err := addFolder(w, f, id, layout.ClusterFolder); err != nil {
			return err
		}
		spaces, err := f.at(layout.DeploymentFolder(id) + "/" + layout.NamespacedFolder)
		if errors.Is(err, errNotFolder) {
			continue
		}
		if err != nil {
			return err
		}
		for space := range spaces.entries {
			if err := addFolder(w, f, id, layout.NamespacedFolder+"/"+space); err != nil {
				return err
			}
		}
	}
	all, err := renderAll(r.deployments, w)
	r.wanted = all
	return err
}

// addFolder notes the files in a folder of a held deployment.
func addFolder(w layout.Written, f *folder, id tko.DeploymentID, name string) error {
	files, err := f.at(layout.DeploymentFolder(id) + "/" + name)
	if errors.Is(err, errNotFolder) {
		return nil
	}
	if err != nil {
		return err
	}
	for file := range files.entries {
		w[name+"/"+file] = id
	}
	return nil
}
