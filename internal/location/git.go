package location

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/guard"
)

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
	objects, err := gitclient.NewObjects("", "tko-git-", options.MaxBytes*expansion)
	if err != nil {
		return nil, err
	}
	defer func() { _ = objects.Close() }()
	hash, err := fetch(ctx, objects, l, options)
	if err != nil {
		return nil, err
	}
	return readCommit(ctx, objects.Repository, hash, l, options)
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
func fetch(ctx context.Context, into *gitclient.Objects, l location, options Options) (plumbing.Hash, error) {
	remote := gitclient.Remote{URL: l.base, Guard: options.Guard}
	refs, err := remote.Refs(ctx)
	if err != nil {
		return plumbing.ZeroHash, remoteError(err)
	}
	from, _, ok := gitclient.Choose(refs, l.ref)
	switch {
	case ok:
	case plumbing.IsHash(l.ref):
		from = plumbing.ReferenceName(l.ref)
	default:
		return plumbing.ZeroHash, noSuchRef(l.ref)
	}
	const to = plumbing.ReferenceName("refs/tko/source")
	err = remote.Fetch(ctx, into.Storer, 1, config.RefSpec("+"+from+":"+to))
	if into.Exceeded() {
		return plumbing.ZeroHash, tooLarge(options.MaxBytes * expansion)
	}
	if err != nil {
		return plumbing.ZeroHash, remoteError(err)
	}
	ref, err := into.Reference(to, true)
	if err != nil {
		return plumbing.ZeroHash, noSuchRef(l.ref)
	}
	return ref.Hash(), nil
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
	for f, err := range gitclient.Files(repository, tree) {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, fmt.Errorf("its tree: %w", err)
		case !s.takes(f.Name):
			continue
		}
		if err := addBlob(&s, f); err != nil {
			return nil, err
		}
	}
	return s.result()
}

func addBlob(s *selection, f gitclient.File) error {
	content, size, err := f.Open()
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	defer func() { _ = content.Close() }()
	if size > s.options.MaxBytes {
		return fmt.Errorf("%s: %w", f.Name, tooLarge(s.options.MaxBytes))
	}
	return s.add(f.Name, content)
}
