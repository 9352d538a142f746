// Package tree stores the files of a revision in a folder of their own: a bounded
// number of regular files, without links or paths that lead out of it. Start
// reading at [Writer].
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Limits bound a revision.
type Limits struct {
	Bytes int64 // of all files; 256 MiB if 0
	Files int   // 100,000 if 0
}

// OrDefault returns the limits with defaults in place of zeros.
func (l Limits) OrDefault() Limits {
	if l.Bytes == 0 {
		l.Bytes = 256 << 20
	}
	if l.Files == 0 {
		l.Files = 100_000
	}
	return l
}

// A Tree holds a revision's files. The caller that gets one closes it.
type Tree struct {
	fs.FS
	dir   string
	root  *os.Root
	files int
	bytes int64
}

// Close deletes the files.
func (t *Tree) Close() error {
	return errors.Join(t.root.Close(), os.RemoveAll(t.dir))
}

// Dir returns the folder of the files.
func (t *Tree) Dir() string { return t.dir }

// Whole reports whether all the files still exist: another process may clean up
// the folder. It also marks them as in use, for Sweep.
func (t *Tree) Whole() bool {
	now := time.Now()
	_ = os.Chtimes(t.dir, now, now)
	files, bytes := 0, int64(0)
	err := fs.WalkDir(t.root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files++
			bytes += info.Size()
		}
		return err
	})
	return err == nil && files == t.files && bytes == t.bytes
}

// A Writer writes a tree.
type Writer struct {
	tree   *Tree
	limits Limits
}

// prefix begins the names of the folders of trees.
const prefix = "tko-gitops-"

// Create begins a tree in a new folder below dir, "" for the system's temporary
// folder.
func Create(dir string, limits Limits) (*Writer, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	path, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &Writer{tree: &Tree{FS: root.FS(), dir: path, root: root}, limits: limits.OrDefault()}, nil
}

// Add writes a regular file. A name that leads out of the tree, and too many
// files or bytes, are an ErrInvalid.
func (w *Writer) Add(name string, content io.Reader) error {
	name = filepath.Clean(filepath.FromSlash(name))
	if !filepath.IsLocal(name) || name == "." {
		return tko.Errorf(tko.ErrInvalid, "the file %.100q leads out of the revision", name)
	}
	w.tree.files++
	if w.tree.files > w.limits.Files {
		return tko.Errorf(tko.ErrInvalid, "the revision has more than %d files", w.limits.Files)
	}
	if err := w.tree.root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	file, err := w.tree.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "the revision's file %.100q can't be stored: %w", name, err)
	}
	left := w.limits.Bytes - w.tree.bytes
	n, err := io.Copy(file, io.LimitReader(content, left+1))
	err = errors.Join(err, file.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.tree.bytes += n
	if n > left {
		return tko.Errorf(tko.ErrInvalid, "the revision has more than %d bytes", w.limits.Bytes)
	}
	return nil
}

// Executable makes a file that was added executable: packages for OSM may contain
// programs.
func (w *Writer) Executable(name string) error {
	return w.tree.root.Chmod(filepath.Clean(filepath.FromSlash(name)), 0o700)
}

// Tree returns the tree that was written.
func (w *Writer) Tree() *Tree { return w.tree }

// Discard deletes what was written.
func (w *Writer) Discard() error { return w.tree.Close() }

// Sweep removes trees in dir that processes left behind when they died: those that
// were not in use for a week.
func Sweep(dir string) {
	if dir == "" {
		dir = os.TempDir()
	}
	left, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > 7*24*time.Hour {
			_ = os.RemoveAll(path)
		}
	}
}
