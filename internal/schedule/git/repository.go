package git

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// errMoved is that somebody else moved the branch meanwhile.
var errMoved = errors.New("the branch was moved by somebody else")

// errUnreadable is that objects which are there can't be read.
var errUnreadable = errors.New("objects can't be read")

const objectCache = 32 * cache.MiByte

// repository is a branch of a repository for the time of one commit.
type repository interface {
	// tip is what the branch is at: zero if it doesn't exist. All that it needs
	// is in objects then.
	tip(ctx context.Context) (plumbing.Hash, error)
	// objects is where objects are read from and written to.
	objects() storer.EncodedObjectStorer
	// move moves the branch from one commit to another, after storing what is
	// new for that. It answers errMoved if it isn't at the first any more.
	move(ctx context.Context, from, to plumbing.Hash, added *staging) error
	close()
}

// staging has the objects of a commit that isn't stored yet, on top of those
// that are.
type staging struct {
	storer.EncodedObjectStorer
	fresh map[plumbing.Hash]plumbing.EncodedObject
	order []plumbing.Hash        // the commit is last
	keep  map[plumbing.Hash]bool // what the next commit is made from: all but the rendered resources
}

func newStaging(on storer.EncodedObjectStorer) *staging {
	return &staging{EncodedObjectStorer: on, fresh: map[plumbing.Hash]plumbing.EncodedObject{}, keep: map[plumbing.Hash]bool{}}
}

// put takes an object; keep says that a later commit is made from it.
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

// EncodedObject answers a new object, or else a stored one.
func (s *staging) EncodedObject(t plumbing.ObjectType, hash plumbing.Hash) (plumbing.EncodedObject, error) {
	if o, ok := s.fresh[hash]; ok && (t == plumbing.AnyObject || t == o.Type()) {
		return o, nil
	}
	return s.EncodedObjectStorer.EncodedObject(t, hash)
}

// store stores the new objects that are wanted and aren't there, in order.
// They are files of their own, however many: a pack each time would make every
// later commit read the indexes of all of them.
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
