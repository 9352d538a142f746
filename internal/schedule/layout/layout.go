package layout

import (
	"fmt"
	"maps"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// A File has one resource of a deployment, in YAML.
type File struct {
	Folder string // below the deployment's, with slashes
	Name   string
	Data   []byte
}

// Path returns the path of the file below the deployment's folder.
func (f File) Path() string { return f.Folder + "/" + f.Name }

// Written has the deployments of a site that have written files, by the paths of the files
// below their folders. Deployments may have the same resource if its content is the same: it is
// written once, because kustomize refuses a folder that has an object twice.
type Written map[string]tko.DeploymentID

// add reports whether another deployment has the file of a path. If none has, add notes it for
// this one.
func (w Written) add(id tko.DeploymentID, path string) bool {
	if by, ok := w[path]; ok {
		return by != id
	}
	w[path] = id
	return false
}

// Render returns the files of a deployment's resources that are for its site, in the order of
// the package, cluster-scoped ones first. It is deterministic. It leaves out those that other
// deployments have in before, and adds the others to it. The caller has checked that shared
// resources are equal. ErrInvalid if two resources are the same object.
func Render(d tko.Deployment, before Written) ([]File, error) {
	var all []File
	own := map[string]bool{}
	add := func(folder string, resource krm.Resource) error {
		f := File{Folder: folder, Name: fileName(resource.Identity())}
		if resource.IsLocal() || before.add(d.ID, f.Path()) {
			return nil
		}
		if own[f.Path()] {
			return tko.Errorf(tko.ErrInvalid, "deployment %q has two resources %s", d.ID, resource.Identity())
		}
		own[f.Path()] = true
		var err error
		if f.Data, err = krm.Encode(krm.YAML, krm.Package{clean(resource)}); err != nil {
			return fmt.Errorf("rendering %s of deployment %q: %w", resource.Identity(), d.ID, err)
		}
		all = append(all, f)
		return nil
	}
	cluster, namespaced := scope.Split(d.Package)
	for _, resource := range cluster {
		if err := add(ClusterFolder, resource); err != nil {
			return nil, err
		}
	}
	for _, resource := range namespaced {
		if err := add(NamespacedFolder+"/"+namespaceFolder(resource.Text("metadata", "namespace")), resource); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// clean returns a resource without the annotations that only TKO reads. It leaves
// the original unchanged.
func clean(r krm.Resource) krm.Resource {
	metadata, ok := r["metadata"].(map[string]any)
	if !ok {
		return r
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return r
	}
	ours := func(key string, _ any) bool { return strings.HasPrefix(key, "nephio.org/") }
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, ours)
	if len(kept) == len(annotations) {
		return r
	}
	r, metadata = maps.Clone(r), maps.Clone(metadata)
	metadata["annotations"] = kept
	if len(kept) == 0 {
		delete(metadata, "annotations")
	}
	r["metadata"] = metadata
	return r
}
