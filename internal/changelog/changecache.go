package changelog

import (
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
)

// maxCachedChanges is the maximum number of cached changes.
const maxCachedChanges = 8192

// A changeCache caches the newest changes for all watchers of a service, so
// that not each of a thousand watchers queries the database at each change.
type changeCache struct {
	feed record.Feed
	lock pause.Mutex // of the fields below

	changes []tko.Change    // all after start, up to head
	start   int64           // position
	head    int64           // position
	seen    <-chan struct{} // the feed's signal before the feed was last read to its end
}

// after returns changes after a position, not necessarily all. If there are
// none, the returned channel is closed once there may be some. The changes must
// not be changed. The caller must know all changes up to the position. Errors
// as for Feed.
func (r *changeCache) after(ctx context.Context, position int64) ([]tko.Change, <-chan struct{}, error) {
	unlock, err := r.lock.Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	wait := r.feed.Signal()
	changes, missed, err := r.cached(ctx, position, wait)
	unlock()
	if err == nil && missed { // a watcher that far behind reads without blocking the others
		changes, err = r.feed.Changes(ctx, position, watchBatch)
	}
	return changes, wait, err
}

// cached returns the changes after a position from the cache, after filling it.
// The caller holds the lock. missed reports that the cache doesn't have all
// changes after the position.
func (r *changeCache) cached(ctx context.Context, position int64, signal <-chan struct{}) (changes []tko.Change, missed bool, err error) {
	if r.head == 0 { // nothing was read yet
		r.reset(position)
	}
	if position < r.start {
		return nil, true, nil
	}
	for position >= r.head && r.seen != signal {
		more, err := r.feed.Changes(ctx, r.head, watchBatch)
		if errors.Is(err, tko.ErrGone) && position > r.head {
			r.reset(position)
			continue
		}
		if err != nil {
			return nil, false, err
		}
		r.add(more)
		switch {
		case len(more) < watchBatch:
			r.seen = signal
		case position > r.head: // there was no watcher for a while: don't read all that was missed
			r.reset(position)
		}
	}
	first := sort.Search(len(r.changes), func(i int) bool { return r.changes[i].Position > position })
	return slices.Clip(r.changes[first:]), false, nil
}

func (r *changeCache) reset(position int64) {
	r.changes, r.start, r.head, r.seen = nil, position, position, nil
}

// add caches changes. Slices that were returned before don't change.
func (r *changeCache) add(more []tko.Change) {
	if len(more) == 0 {
		return
	}
	r.head = more[len(more)-1].Position
	if len(r.changes)+len(more) > maxCachedChanges {
		old := max(0, len(r.changes)-maxCachedChanges/2)
		if old > 0 {
			r.start = r.changes[old-1].Position
		}
		r.changes = append(make([]tko.Change, 0, maxCachedChanges), r.changes[old:]...)
	}
	r.changes = append(r.changes, more...)
}

// position returns the position up to which changes were read.
func (r *changeCache) position(ctx context.Context) (int64, error) {
	unlock, err := r.lock.Lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return max(r.start, r.head), nil
}
