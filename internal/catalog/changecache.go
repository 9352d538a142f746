package catalog

import (
	"context"
	"errors"
	"slices"
	"sort"

	"github.com/tko-orchestrator/tko"
)

// keptChanges is how many of the newest changes are kept for all watchers.
const keptChanges = 8192

// recent are the newest changes, which all watchers of a service share: what
// one of them reads is there for the others. Without, each of a thousand
// watchers would ask the database at every change.
type recent struct {
	feed Feed
	turn chan struct{} // holds one: whoever took it may read and write what follows

	changes []tko.Change    // all after start, up to head
	start   int64           // position
	head    int64           // position
	seen    <-chan struct{} // the feed's signal before it was last read to its end
}

func newRecent(feed Feed) *recent {
	r := &recent{feed: feed, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// after answers changes after a position, not all there may be: none when
// there are no more, and then what is closed once there may be. The changes
// must not be changed. The position is one up to which the caller knows all.
// Errors are those of Feed.
func (r *recent) after(ctx context.Context, position int64) ([]tko.Change, <-chan struct{}, error) {
	select {
	case <-r.turn:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	wait := r.feed.Signal()
	changes, missed, err := r.look(ctx, position, wait)
	r.turn <- struct{}{}
	if err == nil && missed { // who is that far behind reads alone, and keeps nobody waiting
		changes, err = r.feed.Changes(ctx, position, watchBatch)
	}
	return changes, wait, err
}

// look is after, for who has the turn; missed says that not all changes after
// the position are kept.
func (r *recent) look(ctx context.Context, position int64, signal <-chan struct{}) (changes []tko.Change, missed bool, err error) {
	if position-r.head > watchBatch { // nobody watched for a while
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
		if len(more) < watchBatch {
			r.seen = signal
		}
	}
	first := sort.Search(len(r.changes), func(i int) bool { return r.changes[i].Position > position })
	return slices.Clip(r.changes[first:]), false, nil
}

func (r *recent) reset(position int64) {
	r.changes, r.start, r.head, r.seen = nil, position, position, nil
}

// add keeps changes. Those that others were given stay as they are.
func (r *recent) add(more []tko.Change) {
	if len(more) == 0 {
		return
	}
	r.head = more[len(more)-1].Position
	if len(r.changes)+len(more) > keptChanges {
		old := max(0, len(r.changes)-keptChanges/2)
		if old > 0 {
			r.start = r.changes[old-1].Position
		}
		r.changes = append(make([]tko.Change, 0, keptChanges), r.changes[old:]...)
	}
	r.changes = append(r.changes, more...)
}
