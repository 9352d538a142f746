package git

import (
	"context"
	"errors"

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
	// move moves the branch from one commit to another, of which these objects
	// are new. It answers errMoved if it isn't at the first any more.
	move(ctx context.Context, from, to plumbing.Hash, added []plumbing.Hash) error
	close()
}
