package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var feedPromises = []promise{
	{"changes are returned in their order", changesAreOrdered},
	{"the newest changes are found without counting positions", newestAreFound},
	{"readers miss no change while others write", readersMissNothing},
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
	all := w.changes(0)
	if !slices.IsSortedFunc(all, func(a, b tko.Change) int { return cmp.Compare(a.Position, b.Position) }) || all[0].Position <= 0 {
		w.Errorf("positions don't ascend: %v", all)
	}
	w.equal("head", w.head(), all[4].Position)
	changes, err := w.store.Changes(w.ctx(), all[0].Position, 2)
	w.ok(err)
	w.equal("a part", []int64{changes[0].Position, changes[1].Position}, []int64{all[1].Position, all[2].Position})
	w.equal("from the end", len(w.changes(all[4].Position)), 0)
	w.equal("beyond", len(w.changes(all[4].Position+500)), 0)
	first := all[0]
	w.equal("author", first.Author, tko.Author{Who: "Ann", Why: "why not"})
	if first.Time.Before(began) || first.Time.Location() != time.UTC {
		w.Errorf("time is %v", first.Time)
	}
	none, err := w.store.Changes(w.ctx(), 0, 0)
	w.ok(err)
	w.equal("limit 0", len(none), 0)
}

func newestAreFound(w *world) {
	before := func(n int) int64 {
		position, err := w.store.BeforeNewest(w.ctx(), n)
		w.ok(err)
		return position
	}
	w.equal("in an empty store", before(3), int64(0))
	for i := range 9 {
		w.commit(site(fmt.Sprint("s", i)))
	}
	w.equal("none", before(0), w.head())
	w.equal("the newest one", w.logged(before(1)), []loggedChange{{tko.OpWritten, "site s8", 1}})
	w.equal("the newest four", len(w.changes(before(4))), 4)
	w.equal("all", len(w.changes(before(9))), 9)
	w.equal("more than there are", before(500), int64(0))
	w.commit(deleted(siteKey("s0")))
	w.collect(retain(1))
	w.equal("what is retained can be read", len(w.changes(before(500))), 0)
}

func readersMissNothing(w *world) {
	const writers, commits = 16, 25
	ctx, cancel := context.WithTimeout(w.ctx(), eventually.Limit)
	defer cancel()
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for n := range commits {
				id := fmt.Sprintf("s%02d-%02d", i, n)
				if _, err := w.store.Commit(ctx, record.Ungated(site(id), site(id+"x"))); err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	var read [3][]int64
	for i := range read {
		wait.Go(func() { read[i] = tail(ctx, w, 2*writers*commits) })
	}
	wait.Wait()
	var written []int64
	for _, c := range w.changes(0) {
		written = append(written, c.Position)
	}
	for _, positions := range read {
		w.equal("positions that a reader has seen", positions, written)
	}
}

// tail reads a number of changes of the log while it grows, and returns their positions.
func tail(ctx context.Context, w *world, until int) (positions []int64) {
	for last := int64(0); len(positions) < until; {
		signal := w.store.Signal()
		changes, err := w.store.Changes(ctx, last, 7)
		if err != nil {
			w.Error(err)
			return positions
		}
		for _, c := range changes {
			positions = append(positions, c.Position)
			last = c.Position
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-signal:
		case <-ctx.Done():
			w.Errorf("no signal at position %d, after %d of %d changes", last, len(positions), until)
			return positions
		}
	}
	return positions
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
