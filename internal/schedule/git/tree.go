package git

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// errNotFolder means that there is a file or a link in the place of a folder.
var errNotFolder = errors.New("not a folder")

// A folder is a tree that can be changed. Its folders are read only when they are
// opened.
type folder struct {
	objects *staging
	entries map[string]object.TreeEntry
	open    map[string]*folder // the opened ones of the entries, by name
}

func openFolder(objects *staging, hash plumbing.Hash) (*folder, error) {
	f := &folder{objects: objects, entries: map[string]object.TreeEntry{}, open: map[string]*folder{}}
	if hash.IsZero() {
		return f, nil
	}
	t, err := object.GetTree(objects, hash)
	if err != nil {
		return nil, fmt.Errorf("reading tree %s: %w: %w", hash, errUnreadable, err)
	}
	for _, e := range t.Entries {
		f.entries[e.Name] = e
	}
	return f, nil
}

// openRoot opens the tree of a commit, and returns its hash; an empty one if the commit is
// zero.
func openRoot(objects *staging, tip plumbing.Hash) (root *folder, base plumbing.Hash, err error) {
	if !tip.IsZero() {
		commit, err := object.GetCommit(objects, tip)
		if err != nil {
			return nil, plumbing.ZeroHash, fmt.Errorf("reading commit %s: %w: %w", tip, errUnreadable, err)
		}
		base = commit.TreeHash
	}
	root, err = openFolder(objects, base)
	return root, base, err
}

// at opens the folder at a path, and creates it if there is none. errNotFolder if
// there is a file.
func (f *folder) at(path string) (*folder, error) {
	for name := range strings.SplitSeq(path, "/") {
		child, ok := f.open[name]
		if !ok {
			entry, exists := f.entries[name]
			if exists && entry.Mode != filemode.Dir {
				return nil, fmt.Errorf("%q: %w", name, errNotFolder)
			}
			var err error
			if child, err = openFolder(f.objects, entry.Hash); err != nil {
				return nil, err
			}
			f.open[name] = child
		}
		f = child
	}
	return f, nil
}

// ofSite reports whether the folder is that of a site.
func (f *folder) ofSite() bool {
	_, ok := f.entries[inventoryFile]
	return ok
}

// set sets an entry of the folder itself, or removes it if hash is zero.
func (f *folder) set(name string, mode filemode.FileMode, hash plumbing.Hash) {
	delete(f.open, name)
	if hash.IsZero() {
		delete(f.entries, name)
		return
	}
	f.entries[name] = object.TreeEntry{Name: name, Mode: mode, Hash: hash}
}

// write stages the trees of this folder and of all opened ones in it, and returns
// the hash of its own; zero if it is empty.
func (f *folder) write() (plumbing.Hash, error) {
	for name, child := range f.open {
		hash, err := child.write()
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if hash.IsZero() {
			delete(f.entries, name)
		} else {
			f.entries[name] = object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: hash}
		}
	}
	if len(f.entries) == 0 {
		return plumbing.ZeroHash, nil
	}
	entries := make([]object.TreeEntry, 0, len(f.entries))
	for _, e := range f.entries {
		entries = append(entries, e)
	}
	o, err := tree(entries)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	f.objects.put(o, true)
	return o.Hash(), nil
}

// file reads a file of the folder itself; nil if there is none. A file of more than
// limit bytes is an error.
func (f *folder) file(name string, limit int64) ([]byte, error) {
	entry, ok := f.entries[name]
	if !ok || !entry.Mode.IsFile() {
		return nil, nil
	}
	b, err := object.GetBlob(f.objects, entry.Hash)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w: %w", name, errUnreadable, err)
	}
	if b.Size > limit {
		return nil, fmt.Errorf("reading %q: it has %d bytes, more than %d", name, b.Size, limit)
	}
	return readAll(b)
}
