package location

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// isBare reports whether a directory is a bare repository.
func isBare(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func readGit(ctx context.Context, l location, options Options) ([]file, error) {
	remote := strings.Contains(l.base, "://") || scp(l.base)
	if err := options.Guard.Folder(l.base); !remote && err != nil {
		return nil, err
	}
	if info, err := os.Stat(l.base); err == nil && info.IsDir() && options.Guard.Folder(l.base) == nil {
		repository, err := git.PlainOpen(l.base)
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "it is not a git repository: %w", err)
		}
		hash, err := repository.ResolveRevision(plumbing.Revision(orHead(l.ref)))
		if err != nil {
			return nil, noSuchRef(l.ref)
		}
		return readCommit(ctx, repository, *hash, l, options)
	}
	if !remote {
		return nil, tko.Errorf(tko.ErrInvalid, "repository not found")
	}
	ctx, base, proxy, err := options.Guard.Git(ctx, l.base)
	if err != nil {
		return nil, err
	}
	l.base = base
	dir, err := os.MkdirTemp("", "tko-git-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	repository, hash, err := fetch(ctx, dir, l, proxy, options)
	if err != nil {
		return nil, err
	}
	return readCommit(ctx, repository, hash, l, options)
}

func orHead(ref string) string {
	if ref == "" {
		return "HEAD"
	}
	return ref
}

func noSuchRef(ref string) error {
	if ref == "" {
		return tko.Errorf(tko.ErrInvalid, "the repository has no HEAD: name a branch with #NAME")
	}
	return tko.Errorf(tko.ErrInvalid, "the repository has no branch, tag or commit %q", ref)
}

// fetch gets one commit of a remote repository, without its history.
func fetch(ctx context.Context, dir string, l location, proxy transport.ProxyOptions, options Options) (*git.Repository, plumbing.Hash, error) {
	remoteConfig := &config.RemoteConfig{Name: "origin", URLs: []string{l.base}}
	refs, err := git.NewRemote(memory.NewStorage(), remoteConfig).ListContext(ctx, &git.ListOptions{ProxyOptions: proxy})
	if err != nil {
		return nil, plumbing.ZeroHash, remoteError(err)
	}
	from, err := choose(refs, l.ref)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	limit := &limitedFS{Filesystem: osfs.New(dir), left: new(atomic.Int64)}
	limit.left.Store(options.MaxBytes * expansion)
	repository, err := git.Init(filesystem.NewStorage(limit, cache.NewObjectLRUDefault()), nil)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	if _, err := repository.CreateRemote(remoteConfig); err != nil {
		return nil, plumbing.ZeroHash, err
	}
	const to = plumbing.ReferenceName("refs/tko/source")
	err = repository.FetchContext(ctx, &git.FetchOptions{
		ProxyOptions: proxy, Depth: 1, Tags: git.NoTags, RefSpecs: []config.RefSpec{config.RefSpec("+" + from + ":" + string(to))},
	})
	if limit.left.Load() < 0 {
		return nil, plumbing.ZeroHash, tooLarge(options.MaxBytes * expansion)
	}
	if err != nil {
		return nil, plumbing.ZeroHash, remoteError(err)
	}
	ref, err := repository.Reference(to, true)
	if err != nil {
		return nil, plumbing.ZeroHash, noSuchRef(l.ref)
	}
	return repository, ref.Hash(), nil
}

// choose returns the name of the remote reference for ref, or ref itself if it is
// the hash of a commit.
func choose(refs []*plumbing.Reference, ref string) (string, error) {
	names := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, r := range refs {
		names[r.Name()] = r
	}
	if ref == "" {
		head, ok := names[plumbing.HEAD]
		if !ok {
			return "", noSuchRef(ref)
		}
		if head.Type() == plumbing.SymbolicReference {
			if _, ok := names[head.Target()]; !ok {
				return "", noSuchRef(ref)
			}
			return head.Target().String(), nil
		}
		return plumbing.HEAD.String(), nil
	}
	for _, name := range []plumbing.ReferenceName{
		plumbing.NewBranchReferenceName(ref), plumbing.NewTagReferenceName(ref), plumbing.ReferenceName(ref),
	} {
		if _, ok := names[name]; ok {
			return name.String(), nil
		}
	}
	if plumbing.IsHash(ref) {
		return ref, nil
	}
	return "", noSuchRef(ref)
}

func remoteError(err error) error {
	switch {
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return tko.Errorf(tko.ErrInvalid, "repository not found")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return tko.Errorf(tko.ErrInvalid, "the repository is empty")
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return tko.Errorf(tko.ErrDenied, "the repository refuses the credentials: use https://USER:TOKEN@HOST/…, or a key in the SSH agent")
	}
	return plain(guard.GitError(err))
}

func readCommit(ctx context.Context, repository *git.Repository, hash plumbing.Hash, l location, options Options) ([]file, error) {
	if tag, err := repository.TagObject(hash); err == nil {
		hash = tag.Target
	}
	commit, err := repository.CommitObject(hash)
	if err != nil {
		return nil, noSuchRef(l.ref)
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, fmt.Errorf("its tree: %w", err)
	}
	s := selection{within: l.within, options: options}
	walker := object.NewTreeWalker(tree, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return s.result()
		case err != nil:
			return nil, fmt.Errorf("its tree: %w", err)
		case entry.Mode != filemode.Regular && entry.Mode != filemode.Executable && entry.Mode != filemode.Deprecated:
			continue
		case !s.takes(name):
			continue
		}
		if err := addBlob(&s, repository, name, entry.Hash); err != nil {
			return nil, err
		}
	}
}

func addBlob(s *selection, repository *git.Repository, name string, hash plumbing.Hash) error {
	blob, err := repository.BlobObject(hash)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if blob.Size > s.options.MaxBytes {
		return fmt.Errorf("%s: %w", name, tooLarge(s.options.MaxBytes))
	}
	r, err := blob.Reader()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	return s.add(name, r)
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
