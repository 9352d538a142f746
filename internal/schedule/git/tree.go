package git

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// errNotFolder is that a file (or a link) is where a folder must be.
var errNotFolder = errors.New("not a folder")

// folder is a tree that can be changed. What isn't looked at isn't read.
type folder struct {
	objects *staging
	entries map[string]object.TreeEntry
	open    map[string]*folder // those of the entries that were looked at
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

// at answers the folder at a path, making it as needed.
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

// set puts an entry into the folder itself; a zero hash takes it out.
func (f *folder) set(name string, mode filemode.FileMode, hash plumbing.Hash) {
	delete(f.open, name)
	if hash.IsZero() {
		delete(f.entries, name)
		return
	}
	f.entries[name] = object.TreeEntry{Name: name, Mode: mode, Hash: hash}
}

// write makes the objects of all folders that were opened and answers the
// hash, which is zero for a folder that is empty.
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

// file reads a file of the folder itself; nil if there is none.
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
