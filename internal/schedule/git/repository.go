package git

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
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

// looseLimit is how many objects are stored as files of their own; git draws
// the line there too.
const looseLimit = 100

// store stores the new objects that are wanted and aren't there, in order, or,
// if they are many, all at once in a pack.
func (s *staging) store(wanted func(plumbing.Hash) bool) error {
	var missing []plumbing.Hash
	for _, hash := range s.order {
		if wanted(hash) && s.HasEncodedObject(hash) != nil {
			missing = append(missing, hash)
		}
	}
	if packs, ok := s.EncodedObjectStorer.(storer.PackfileWriter); ok && len(missing) > looseLimit {
		return s.pack(packs, missing)
	}
	for _, hash := range missing {
		if _, err := s.SetEncodedObject(s.fresh[hash]); err != nil {
			return fmt.Errorf("storing object %s: %w", hash, err)
		}
	}
	return nil
}

func (s *staging) pack(packs storer.PackfileWriter, hashes []plumbing.Hash) error {
	w, err := packs.PackfileWriter()
	if err != nil {
		return fmt.Errorf("storing a pack: %w", err)
	}
	_, err = packfile.NewEncoder(w, s, false).Encode(hashes, 0)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("storing a pack: %w", err)
	}
	return nil
}
