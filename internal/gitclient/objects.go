package gitclient

import (
	"errors"
	"io"
	"iter"
	"os"
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Objects is a repository of limited size for fetched objects, in a folder that Close removes. It is for one goroutine.
type Objects struct {
	*git.Repository

	storage *filesystem.Storage
	dir     string
	left    *atomic.Int64 // bytes
}

// NewObjects makes an empty repository that takes at most limit bytes, in a new folder in dir, whose name begins with
// prefix; the system's folder for temporary files if dir is empty.
func NewObjects(dir, prefix string, limit int64) (*Objects, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	o := &Objects{dir: dir, left: new(atomic.Int64)}
	o.left.Store(limit)
	o.storage = filesystem.NewStorage(&limitedFS{Filesystem: osfs.New(dir), left: o.left}, cache.NewObjectLRUDefault())
	if o.Repository, err = git.Init(inMemory{o.storage, memory.ReferenceStorage{}}, nil); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// An inMemory has the objects of a storage, and references in memory: a catalog fetches tens of thousands of them, and each
// would be a file.
type inMemory struct {
	*filesystem.Storage

	references memory.ReferenceStorage
}

func (i inMemory) SetReference(ref *plumbing.Reference) error { return i.references.SetReference(ref) }

func (i inMemory) CheckAndSetReference(ref, old *plumbing.Reference) error {
	return i.references.CheckAndSetReference(ref, old)
}

func (i inMemory) Reference(name plumbing.ReferenceName) (*plumbing.Reference, error) {
	return i.references.Reference(name)
}

func (i inMemory) IterReferences() (storer.ReferenceIter, error) {
	return i.references.IterReferences()
}

func (i inMemory) RemoveReference(name plumbing.ReferenceName) error {
	return i.references.RemoveReference(name)
}
func (i inMemory) CountLooseRefs() (int, error) { return i.references.CountLooseRefs() }
func (i inMemory) PackRefs() error              { return i.references.PackRefs() }

// Exceeded reports whether a write failed because of the limit.
func (o *Objects) Exceeded() bool { return o.left.Load() < 0 }

// Close removes the objects.
func (o *Objects) Close() error { return errors.Join(o.storage.Close(), os.RemoveAll(o.dir)) }

// A File is a regular file of a tree.
type File struct {
	Name       string // with slashes, relative to the tree
	Executable bool

	repository *git.Repository
	hash       plumbing.Hash
}

// Open returns the content, which the caller closes, and its size in bytes.
func (f File) Open() (content io.ReadCloser, size int64, err error) {
	blob, err := f.repository.BlobObject(f.hash)
	if err != nil {
		return nil, 0, err
	}
	content, err = blob.Reader()
	return content, blob.Size, err
}

// Size returns the size of the content in bytes, without reading it.
func (f File) Size() (int64, error) { return f.repository.Storer.EncodedObjectSize(f.hash) }

// Files returns the regular files of a tree and of the trees in it, without links and submodules. It ends with an error.
func Files(repository *git.Repository, tree *object.Tree) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		walker := object.NewTreeWalker(tree, true, nil)
		defer walker.Close()
		for {
			name, entry, err := walker.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(File{}, err)
				return
			}
			switch entry.Mode {
			case filemode.Regular, filemode.Executable, filemode.Deprecated:
				if !yield(File{name, entry.Mode == filemode.Executable, repository, entry.Hash}, nil) {
					return
				}
			default:
			}
		}
	}
}

// A limitedFS refuses writes beyond the bytes that are left.
type limitedFS struct {
	billy.Filesystem

	left *atomic.Int64
}

func (l *limitedFS) Create(name string) (billy.File, error) {
	return l.limit(l.Filesystem.Create(name))
}

func (l *limitedFS) OpenFile(name string, flag int, mode os.FileMode) (billy.File, error) {
	return l.limit(l.Filesystem.OpenFile(name, flag, mode))
}

func (l *limitedFS) TempFile(dir, prefix string) (billy.File, error) {
	return l.limit(l.Filesystem.TempFile(dir, prefix))
}

func (l *limitedFS) Chroot(dir string) (billy.Filesystem, error) {
	inner, err := l.Filesystem.Chroot(dir)
	if err != nil {
		return nil, err
	}
	return &limitedFS{Filesystem: inner, left: l.left}, nil
}

func (l *limitedFS) limit(f billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	return &limitedFile{File: f, left: l.left}, nil
}

type limitedFile struct {
	billy.File

	left *atomic.Int64
}

func (f *limitedFile) Write(p []byte) (int, error) {
	if f.left.Add(-int64(len(p))) < 0 {
		return 0, errors.New("the repository is too large")
	}
	return f.File.Write(p)
}
