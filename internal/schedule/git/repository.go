package git

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// errMoved means that another writer moved the branch since it was read.
var errMoved = errors.New("another writer moved the branch")

// errUnreadable means that stored objects can't be read.
var errUnreadable = errors.New("objects can't be read")

const objectCache = 32 * cache.MiByte

// A repository is a branch of a repository, opened for one commit.
type repository interface {
	// tip returns the commit of the branch; zero if the branch doesn't exist.
	// Afterwards, objects has all that the commit refers to.
	tip(ctx context.Context) (plumbing.Hash, error)
	// objects returns the storage of objects.
	objects() storer.EncodedObjectStorer
	// move stores the added objects and moves the branch from one commit to
	// another. errMoved if the branch is no longer at the first.
	move(ctx context.Context, from, to plumbing.Hash, added *staging) error
	close()
}

// staging holds the objects of a commit that isn't stored yet, in addition to the
// stored objects.
type staging struct {
	storer.EncodedObjectStorer
	fresh map[plumbing.Hash]plumbing.EncodedObject
	order []plumbing.Hash        // the commit is last
	keep  map[plumbing.Hash]bool // what the next commit is built from: all but the rendered resources
}

func newStaging(on storer.EncodedObjectStorer) *staging {
	return &staging{EncodedObjectStorer: on, fresh: map[plumbing.Hash]plumbing.EncodedObject{}, keep: map[plumbing.Hash]bool{}}
}

// put adds an object. If keep is true, later commits are built from it.
func (s *staging) put(o plumbing.EncodedObject, keep bool) {
	hash := o.Hash()
	if _, ok := s.fresh[hash]; !ok {
		s.fresh[hash] = o
		s.order = append(s.order, hash)
	}
	if keep {
		s.keep[hash] = true
	}
}

// EncodedObject returns a new object, or else a stored one.
func (s *staging) EncodedObject(t plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	if o, ok := s.fresh[hash]; ok && (t == plumbing.AnyObject || t == o.Type()) {
		return o, nil
	}
	return s.EncodedObjectStorer.EncodedObject(t, hash)
}

// store stores the new objects that are wanted and not stored yet, in order. Each
// becomes a file: if each commit made a pack, every later commit would read the
// indexes of all packs.
func (s *staging) store(wanted func(plumbing.Hash) bool) error {
	for _, hash := range s.order {
		if !wanted(hash) || s.HasEncodedObject(hash) == nil {
			continue
		}
		if _, err := s.SetEncodedObject(s.fresh[hash]); err != nil {
			return fmt.Errorf("storing object %s: %w", hash, err)
		}
	}
	return nil
}
