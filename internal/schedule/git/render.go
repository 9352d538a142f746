package git

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// A rendered deployment is a deployment as git objects.
type rendered struct {
	id       tko.DeploymentID
	template tko.TemplateID
	revision int64
	tree     plumbing.Hash            // zero if there is nothing to apply
	objects  []plumbing.EncodedObject // the tree and its contents
}

// render makes the objects of a deployment. It is deterministic. It leaves out
// resources that are in before, of other deployments, and adds the others to it.
func render(d tko.Deployment, before sharedFiles) (rendered, error) {
	r := rendered{id: d.ID, template: d.Template, revision: d.Stamp.Revision}
	cluster, namespaced := scope.Split(d.Package)
	folders := map[string]map[string]plumbing.Hash{} // folder below the deployment's: file: blob
	add := func(folder string, resource krm.Resource) error {
		if resource.IsLocal() || before.add(d.ID, folder, resource) {
			return nil
		}
		data, err := krm.Encode(krm.YAML, krm.Package{clean(resource)})
		if err != nil {
			return fmt.Errorf("rendering %s of deployment %q: %w", resource.Identity(), d.ID, err)
		}
		if folders[folder] == nil {
			folders[folder] = map[string]plumbing.Hash{}
		}
		name := fileName(resource.Identity())
		if _, ok := folders[folder][name]; ok {
			return tko.Errorf(tko.ErrInvalid, "deployment %q has two resources %s", d.ID, resource.Identity())
		}
		folders[folder][name] = r.add(blob(data))
		return nil
	}
	for _, resource := range cluster {
		if err := add(clusterFolder, resource); err != nil {
			return rendered{}, err
		}
	}
	for _, resource := range namespaced {
		if err := add(namespacedFolder+"/"+namespaceFolder(resource.Text("metadata", "namespace")), resource); err != nil {
			return rendered{}, err
		}
	}
	if len(folders) == 0 {
		return r, nil
	}

	var top, spaces []object.TreeEntry
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		var entries []object.TreeEntry
		for _, name := range slices.Sorted(maps.Keys(folders[folder])) {
			entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: folders[folder][name]})
		}
		o, err := tree(entries)
		if err != nil {
			return rendered{}, fmt.Errorf("rendering deployment %q: %w", d.ID, err)
		}
		entry := object.TreeEntry{Name: folder, Mode: filemode.Dir, Hash: r.add(o)}
		if space, ok := strings.CutPrefix(folder, namespacedFolder+"/"); ok {
			entry.Name = space
			spaces = append(spaces, entry)
		} else {
			top = append(top, entry)
		}
	}
	if len(spaces) > 0 {
		o, err := tree(spaces)
		if err != nil {
			return rendered{}, fmt.Errorf("rendering deployment %q: %w", d.ID, err)
		}
		top = append(top, object.TreeEntry{Name: namespacedFolder, Mode: filemode.Dir, Hash: r.add(o)})
	}
	o, err := tree(top)
	if err != nil {
		return rendered{}, fmt.Errorf("rendering deployment %q: %w", d.ID, err)
	}
	r.tree = r.add(o)
	return r, nil
}

func (r *rendered) add(o plumbing.EncodedObject) plumbing.Hash {
	r.objects = append(r.objects, o)
	return o.Hash()
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
	if metadata["annotations"] = kept; len(kept) == 0 {
		delete(metadata, "annotations")
	}
	r["metadata"] = metadata
	return r
}

func blob(data []byte) plumbing.EncodedObject {
	o := &plumbing.MemoryObject{}
	o.SetType(plumbing.BlobObject)
	_, _ = o.Write(data) // into memory
	return o
}

// tree makes a tree of entries in any order.
func tree(entries []object.TreeEntry) (plumbing.EncodedObject, error) {
	slices.SortFunc(entries, func(a, b object.TreeEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	o := &plumbing.MemoryObject{}
	if err := (&object.Tree{Entries: entries}).Encode(o); err != nil {
		return nil, err
	}
	return o, nil
}

// sortName returns the name by which git sorts an entry of a tree.
func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}
