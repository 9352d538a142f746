package gitclient

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/tko-orchestrator/tko/internal/guard"
)

// A Remote is a repository that is read through git's protocol.
type Remote struct {
	URL   string
	Auth  Auth
	CA    []byte       // certificates in PEM for the server's; the system's if empty
	Guard *guard.Guard // restricts the servers; none are refused if nil
}

// open returns the remote of a storage. The caller uses the returned context.
func (r Remote) open(ctx context.Context, into storage.Storer) (context.Context, *git.Remote, transport.ProxyOptions, error) {
	ctx, url, proxy, err := r.Guard.Git(ctx, r.URL)
	return ctx, git.NewRemote(into, &config.RemoteConfig{Name: "origin", URLs: []string{url}}), proxy, err
}

// Refs returns the references with one request. An annotated tag NAME has its commit as NAME^{}.
func (r Remote) Refs(ctx context.Context) ([]*plumbing.Reference, error) {
	ctx, remote, proxy, err := r.open(ctx, memory.NewStorage())
	if err != nil {
		return nil, err
	}
	return remote.ListContext(ctx, &git.ListOptions{Auth: r.Auth.Method, CABundle: r.CA, ProxyOptions: proxy, PeelingOption: git.AppendPeeled})
}

// Fetch fetches what the specs name, and no other tags. depth is the number of commits of each history; all if 0.
func (r Remote) Fetch(ctx context.Context, into storage.Storer, depth int, specs ...config.RefSpec) error {
	ctx, remote, proxy, err := r.open(ctx, into)
	if err != nil {
		return err
	}
	err = remote.FetchContext(ctx, &git.FetchOptions{
		RefSpecs: specs, Depth: depth, Auth: r.Auth.Method, CABundle: r.CA, ProxyOptions: proxy, Tags: git.NoTags, Force: true,
	})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	return err
}

// Choose returns the reference that ref names: a branch, a tag or a full name; the branch of HEAD if it is empty. The
// hash is of a commit if refs has the commits of tags. It returns false if there is no such reference.
func Choose(refs []*plumbing.Reference, ref string) (name plumbing.ReferenceName, hash plumbing.Hash, ok bool) {
	names := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, r := range refs {
		names[r.Name()] = r
	}
	wanted := []plumbing.ReferenceName{plumbing.NewBranchReferenceName(ref), plumbing.NewTagReferenceName(ref), plumbing.ReferenceName(ref)}
	if ref == "" {
		wanted = []plumbing.ReferenceName{plumbing.HEAD}
	}
	for _, name := range wanted {
		found := names[name]
		if found != nil && found.Type() == plumbing.SymbolicReference {
			found = names[found.Target()]
		}
		if found == nil {
			continue
		}
		if peeled := names[found.Name()+"^{}"]; peeled != nil {
			return found.Name(), peeled.Hash(), true
		}
		return found.Name(), found.Hash(), true
	}
	return "", plumbing.ZeroHash, false
}

// IsBare reports whether a folder is a bare repository.
func IsBare(dir string) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
