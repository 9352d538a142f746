package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var feedPromises = []promise{
	{"changes are returned in their order", changesAreOrdered},
	{"readers see no gaps in the log while others write", logHasNoGaps},
	{"a commit signals", commitSignals},
	{"work that is due again signals", workSignals},
}

func changesAreOrdered(w *world) {
	w.equal("head of an empty store", w.head(), int64(0))
	w.equal("changes of an empty store", len(w.changes(0)), 0)
	began := time.Now().Add(-time.Minute)
	w.commit(site("a", by("Ann", "why not")))
	w.commit(site("b"))
	w.commit(site("a", expect(1)), status(siteKey("b")))
	w.commit(deleted(siteKey("a")))
	w.equal("all", w.logged(0), []loggedChange{
		{tko.OpWritten, "site a", 1}, {tko.OpWritten, "site b", 1}, {tko.OpWritten, "site a", 2}, {tko.OpStatus, "site b", 1}, {tko.OpDeleted, "site a", 2},
	})
	w.equal("head", w.head(), int64(5))
	changes, err := w.store.Changes(w.ctx(), 1, 2)
	w.ok(err)
	w.equal("a part", []int64{changes[0].Position, changes[1].Position}, []int64{2, 3})
	w.equal("from the end", len(w.changes(5)), 0)
	w.equal("beyond", len(w.changes(500)), 0)
	first := w.changes(0)[0]
	w.equal("author", first.Author, tko.Author{Who: "Ann", Why: "why not"})
	if first.Time.Before(began) || first.Time.Location() != time.UTC {
		w.Errorf("time is %v", first.Time)
	}
	none, err := w.store.Changes(w.ctx(), 0, 0)
	w.ok(err)
	w.equal("limit 0", len(none), 0)
}

func logHasNoGaps(w *world) {
	const writers, commits = 16, 25
	ctx, cancel := context.WithTimeout(w.ctx(), eventually.Limit)
	defer cancel()
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for n := range commits {
				id := fmt.Sprintf("s%02d-%02d", i, n)
				if _, err := w.store.Commit(ctx, catalog.Ungated(site(id), site(id+"x"))); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		wait.Go(func() { tail(ctx, w, 2*writers*commits) })
	}
	wait.Wait()
}

// tail reads the log up to a position while it grows.
func tail(ctx context.Context, w *world, until int64) {
	for last := int64(0); last < until; {
		signal := w.store.Signal()
		changes, err := w.store.Changes(ctx, last, 7)
		if err != nil {
			w.Error(err)
			return
		}
		for _, c := range changes {
			if c.Position != last+1 {
				w.Errorf("position %d comes after %d", c.Position, last)
				return
			}
			last = c.Position
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-signal:
		case <-ctx.Done():
			w.Errorf("no signal at position %d, want changes up to %d", last, until)
			return
		}
	}
}

func (w *world) signalled(signal <-chan struct{}) {
	w.Helper()
	select {
	case <-signal:
	case <-time.After(eventually.Limit):
		w.Fatal("no signal")
	}
}

func commitSignals(w *world) {
	signal := w.store.Signal()
	w.commit(site("s"))
	w.signalled(signal)
	signal = w.store.Signal()
	w.commit(status(siteKey("s")))
	w.signalled(signal)
}

func workSignals(w *world) {
	w.commit(deployment("d"))
	items := w.claim(tko.QueuePrepare, 1, time.Minute)
	signal := w.store.Signal()
	w.ok(w.store.FinishWork(w.ctx(), []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkReleased}}, nil))
	w.signalled(signal)
	w.equal("due", w.dueWork(tko.QueuePrepare), []string{"d"})
}

// Tail reads the log of a store up to a position, and fails the test if it has a gap.
func Tail(ctx context.Context, t *testing.T, store catalog.Store, until int64) {
	tail(ctx, &world{T: t, store: store}, until)
}
