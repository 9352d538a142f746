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
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
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
func render(d tko.Deployment, before layout.Written) (rendered, error) {
	r := rendered{id: d.ID, template: d.Template, revision: d.Stamp.Revision}
	files, err := layout.Render(d, before)
	if err != nil {
		return rendered{}, err
	}
	folders := map[string]map[string]plumbing.Hash{} // folder below the deployment's: file: blob
	for _, f := range files {
		if folders[f.Folder] == nil {
			folders[f.Folder] = map[string]plumbing.Hash{}
		}
		folders[f.Folder][f.Name] = r.add(blob(f.Data))
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
		if space, ok := strings.CutPrefix(folder, layout.NamespacedFolder+"/"); ok {
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
		top = append(top, object.TreeEntry{Name: layout.NamespacedFolder, Mode: filemode.Dir, Hash: r.add(o)})
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
