package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
)

// A Session holds objects that were fetched together.
type Session struct {
	repository *Repository

	mu      sync.Mutex // the objects are for one reader
	objects *gitclient.Objects
	trees   map[plumbing.Hash]*object.Tree // that were read: tags of the same folders have the same ones above
}

// open returns a Session without objects.
func (r *Repository) open() (*Session, error) {
	objects, err := gitclient.NewObjects(r.options.Dir, "tko-gitops-objects-", 2*r.options.Limits.OrDefault().Bytes)
	return &Session{repository: r, objects: objects, trees: map[plumbing.Hash]*object.Tree{}}, err
}

// Close removes the objects.
func (s *Session) Close() error { return s.objects.Close() }

// transfer calls fetch with credentials and a time limit. If the objects exceed the limit of
// bytes, the error is an ErrInvalid.
func (s *Session) transfer(ctx context.Context, fetch func(context.Context, gitclient.Remote) error) error {
	r := s.repository
	remote, err := r.remote()
	if err != nil {
		return err
	}
	limit := 10 * r.options.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the transfer did not end within %s", limit))
	defer cancel()
	err = fetch(ctx, remote)
	switch {
	case err == nil:
		return nil
	case s.objects.Exceeded():
		return tko.Errorf(tko.ErrInvalid, "the revision has more than %d bytes", 2*r.options.Limits.OrDefault().Bytes)
	}
	return remote.Auth.Hide(explain(ctx, r.hide(err)))
}

// The prefixes of the names of tags and branches.
const (
	Tags     = "tags/"
	Branches = "heads/"
)

const refsTo = "refs/tko/"

// FetchAll fetches tags and branches, by the names of Commits, without their history, all in
// one transfer. If they are larger together than the limit of a revision, it returns nil:
// fetch fewer. The caller closes the Session.
func (r *Repository) FetchAll(ctx context.Context, names []string) (*Session, error) {
	s, err := r.open()
	if err != nil {
		return nil, err
	}
	var specs []config.RefSpec
	for _, name := range names {
		specs = append(specs, config.RefSpec("+refs/"+name+":"+refsTo+name))
	}
	err = s.transfer(ctx, func(ctx context.Context, from gitclient.Remote) error {
		return from.Fetch(ctx, s.objects.Storer, 1, specs...)
	})
	switch {
	case err == nil:
		return s, nil
	case s.objects.Exceeded() && len(names) > 1 && ctx.Err() == nil:
		return nil, s.Close()
	}
	return nil, errors.Join(err, s.Close())
}

// Files returns the files of a fetched tag or branch, which must be at that commit, in a folder; ""
// for all. They are read from the objects when they are opened, until the session is closed. If keys
// is not empty, the tag, or the commit of the branch, must be signed by one of these PGP keys, in
// ASCII armor; otherwise the error is an ErrInvalid.
func (s *Session) Files(ctx context.Context, name, commit, folder, keys string) (fs.FS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := plumbing.NewHash(commit)
	ref, err := s.objects.Reference(plumbing.ReferenceName(refsTo+name), false)
	if err != nil {
		return nil, errMoved
	}
	tag, isTag := strings.CutPrefix(name, Tags)
	if keys != "" && isTag {
		if err := s.verify(tag, ref.Hash(), hash, keys); err != nil {
			return nil, err
		}
	}
	found, err := s.objects.CommitObject(hash)
	if err != nil {
		if other, err := s.objects.Storer.EncodedObject(plumbing.AnyObject, hash); err == nil && other.Type() != plumbing.CommitObject {
			return nil, tko.Errorf(tko.ErrInvalid, "it is the tag of a %s, and not of a commit", other.Type())
		}
		return nil, errMoved
	}
	if keys != "" && !isTag {
		if found.PGPSignature == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "its newest commit isn't signed with a PGP key")
		}
		if _, err := found.Verify(keys); err != nil {
			return nil, notValid(err)
		}
	}
	return s.index(ctx, found, folder)
}

func notValid(err error) error {
	return tko.Errorf(tko.ErrInvalid, "its signature is not valid for the keys of pgpKeyFile: %w", err)
}

var errMoved = errors.New("the tag or branch was moved or deleted while it was read: it is read again")

// verify checks that a tag's object is signed, has the tag's name, and is at the commit.
func (s *Session) verify(name string, at, commit plumbing.Hash, keys string) error {
	tag, err := s.objects.TagObject(at)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return tko.Errorf(tko.ErrInvalid, "it isn't signed: it is a tag without a message")
	}
	if err != nil {
		return err
	}
	if tag.Name != name { // a signed tag under another name
		return tko.Errorf(tko.ErrInvalid, "its signature is for the tag %q", tag.Name)
	}
	if tag.Target != commit {
		return tko.Errorf(tko.ErrInvalid, "it was moved while it was read, or is a tag of a tag")
	}
	if tag.PGPSignature == "" {
		return tko.Errorf(tko.ErrInvalid, "it isn't signed with a PGP key")
	}
	if _, err := tag.Verify(keys); err != nil {
		return notValid(err)
	}
	return nil
}

// maxTrees limits the trees in memory; a tree of a thousand folders takes some 200 KB.
const maxTrees = 64

// tree returns a folder of a commit; "" for all. It has no files if there is no such folder. The
// caller holds the mutex.
func (s *Session) tree(commit *object.Commit, folder string) (*object.Tree, error) {
	here, err := s.treeAt(commit.TreeHash)
	if err != nil || folder == "" {
		return here, err
	}
	for part := range strings.SplitSeq(folder, "/") {
		entry, err := here.FindEntry(part)
		if errors.Is(err, object.ErrEntryNotFound) || err == nil && entry.Mode != filemode.Dir {
			return &object.Tree{}, nil
		}
		if err != nil {
			return nil, err
		}
		if here, err = s.treeAt(entry.Hash); err != nil {
			return nil, err
		}
	}
	return here, nil
}

func (s *Session) treeAt(hash plumbing.Hash) (*object.Tree, error) {
	if known, ok := s.trees[hash]; ok {
		return known, nil
	}
	found, err := s.objects.TreeObject(hash)
	if err != nil {
		return nil, err
	}
	if len(s.trees) >= maxTrees {
		clear(s.trees)
	}
	s.trees[hash] = found
	return found, nil
}
