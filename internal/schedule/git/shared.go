package git

import (
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// sharedFiles has the deployments of a site that have written files, by the folders and
// names of these. Deployments may have the same resource if its content is the same: it is
// written once, because kustomize refuses a folder that has an object twice.
type sharedFiles map[string]tko.DeploymentID

// add reports whether another deployment has a file of the resource. If none has, add notes
// it for this one.
func (w sharedFiles) add(id tko.DeploymentID, folder string, r krm.Resource) bool {
	name := folder + "/" + fileName(r.Identity())
	if by, ok := w[name]; ok {
		return by != id
	}
	w[name] = id
	return false
}

// renderAll renders deployments, which are ordered by ID: the first one that has a
// shared resource writes it. The caller has checked that shared resources are equal.
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
		if err := w.addFolder(f, id, clusterFolder); err != nil {
			return err
		}
		spaces, err := f.at(deploymentFolder(id) + "/" + namespacedFolder)
		if errors.Is(err, errNotFolder) {
			continue
		}
		if err != nil {
			return err
		}
		for space := range spaces.entries {
			if err := w.addFolder(f, id, namespacedFolder+"/"+space); err != nil {
				return err
			}
		}
	}
	all, err := renderAll(r.deployments, w)
	r.wanted = all
	return err
}

// addFolder notes the files in a folder of a held deployment.
func (w sharedFiles) addFolder(f *folder, id tko.DeploymentID, name string) error {
	files, err := f.at(deploymentFolder(id) + "/" + name)
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
