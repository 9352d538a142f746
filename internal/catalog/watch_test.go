package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A countingStore counts how often its changes are read.
type countingStore struct {
	record.Store
	reads atomic.Int64
}

func (s *countingStore) Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error) {
	s.reads.Add(1)
	return s.Store.Changes(ctx, after, limit)
}

func watchWorld(t *testing.T) (*world, *countingStore) {
	t.Helper()
	store := &countingStore{Store: openStore(t)}
	return &world{Service: catalog.New(store, &validator{}, catalog.Options{}), t: t, ctx: t.Context(), store: store}, store
}

// inOrder fails unless changes begin with the n changes that the log has after a position.
func inOrder(store *countingStore, changes iter.Seq2[tko.Change, error], after int64, n int) error {
	var got []int64
	for c, err := range changes {
		if err != nil {
			return err
		}
		got = append(got, c.Position)
		if len(got) == n {
			break
		}
	}
	want, err := positions(store, after, len(got))
	switch {
	case err != nil:
		return err
	case len(got) < n:
		return fmt.Errorf("the watch ended after %d of %d changes", len(got), n)
	case !slices.Equal(got, want):
		return fmt.Errorf("the watch has the positions %d, and the log %d", got, want)
	}
	return nil
}

// positions returns those of the first n changes of the log after a position.
func positions(store *countingStore, after int64, n int) (found []int64, err error) {
	for len(found) < n {
		changes, err := store.Store.Changes(context.Background(), after, n-len(found))
		if err != nil || len(changes) == 0 {
			return found, err
		}
		for _, c := range changes {
			after = c.Position
			found = append(found, after)
		}
	}
	return found, nil
}

func TestManyWatchersShareReads(t *testing.T) {
	t.Parallel()
	const watchers, writes = 200, 20
	w, store := watchWorld(t)
	w.site("first", "")
	from, err := store.Head(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var ready, done sync.WaitGroup
	ready.Add(watchers)
	for range watchers {
		done.Go(func() {
			first := true
			if err := inOrder(store, func(yield func(tko.Change, error) bool) {
				for c, err := range w.Watch(w.ctx, from-1) {
					if first { // it is watching
						first = false
						ready.Done()
					}
					if !yield(c, err) {
						return
					}
				}
			}, from-1, 1+writes); err != nil {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	before := store.reads.Load()
	for i := range writes {
		w.site(fmt.Sprintf("site-%d", i), "")
	}
	done.Wait()
	// One read that finds a change, one that finds no more, and the same again for
	// watchers that had not waited yet when the next change was written.
	if reads := store.reads.Load() - before; reads > 4*writes {
		t.Errorf("%d watchers of %d changes read the log %d times", watchers, writes, reads)
	}
}

func TestWatcherFarBehindMissesNothing(t *testing.T) {
	t.Parallel()
	w, store := watchWorld(t)
	w.site("first", "")
	const writes = 12_000 // more than the cache holds
	next, stop := iter.Pull2(w.Watch(w.ctx, 0))
	defer stop()
	first, err, _ := next()
	if err != nil {
		t.Fatal(err)
	}
	// One watcher keeps up, so that the cache drops the changes that the slow one needs.
	var quick sync.WaitGroup
	quick.Go(func() {
		if err := inOrder(store, w.Watch(w.ctx, first.Position), first.Position, writes); err != nil {
			t.Errorf("the quick watcher: %v", err)
		}
	})
	for n := range writes / 500 {
		commitSites(t, store, n, 500)
	}
	quick.Wait()
	slow := func(yield func(tko.Change, error) bool) {
		for {
			c, err, ok := next()
			if !ok || !yield(c, err) {
				return
			}
		}
	}
	if err := inOrder(store, slow, first.Position, writes); err != nil {
		t.Errorf("the slow watcher: %v", err)
	}
}

func TestWatchContinuesAfterAPauseOfAllWatchers(t *testing.T) {
	t.Parallel()
	const count = 3001
	for name, test := range map[string]struct {
		why   string
		after int // changes
	}{
		"just behind the cache": {"it must not wait for existing changes", 999},
		"one full read behind":  {"the read ends at its position, but the log doesn't", 1001},
		"far beyond the cache":  {"the cache is reset", 2500},
		"the newest":            {"it has something to wait for", count - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, store := watchWorld(t)
			w.site("first", "")
			if err := inOrder(store, w.Watch(w.ctx, 0), 0, 1); err != nil {
				t.Fatal(err)
			}
			for n := range 5 {
				commitSites(t, store, n, 600)
			}
			ctx, cancel := context.WithTimeout(w.ctx, 2*time.Minute)
			defer cancel()
			all, err := positions(store, 0, count)
			if err != nil || len(all) != count {
				t.Fatalf("the log has %d changes, %v", len(all), err)
			}
			after := all[test.after-1]
			if err := inOrder(store, w.Watch(ctx, after), after, count-test.after); err != nil {
				t.Errorf("%v: %s", err, test.why)
			}
		})
	}
}

// commitSites writes sites in one transaction.
func commitSites(t *testing.T, store record.Store, series, count int) {
	t.Helper()
	var batch []record.Write
	for i := range count {
		batch = append(batch, record.Write{
			Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: fmt.Sprintf("site-%d-%d", series, i)}, UID: "u"},
		})
	}
	if _, err := store.Commit(t.Context(), record.Ungated(batch...)); err != nil {
		t.Fatal(err)
	}
}

func TestWatcherThatStopsDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w, store := watchWorld(t)
	w.site("first", "")
	first := w.head()
	ended := make(chan error, 1)
	go func() { ended <- inOrder(store, w.Watch(w.ctx, first), first, 20) }()
	for i := range 20 {
		ctx, cancel := context.WithCancel(w.ctx)
		var gone sync.WaitGroup
		for range 20 {
			gone.Go(func() {
				for range w.Watch(ctx, -1) {
				}
			})
		}
		w.site(fmt.Sprintf("site-%d", i), "")
		cancel()
		gone.Wait()
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A caller that gets cached changes of other kinds must not wait for a signal that
// is newer than the changes that it has seen.
func TestEventsOfOneKindArriveAfterCachedChangesOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "")
	if _, _, _, err := w.Events(w.ctx, tko.KindTemplate, 0); err != nil {
		t.Fatal(err) // it fills the cache
	}
	w.site("s", "")
	events, _, _, err := w.Events(w.ctx, tko.KindSite, 0)
	if err != nil || len(events) != 1 || events[0].ID != "s" {
		t.Fatalf("events %v, error %v, want the site's", events, err)
	}
}

// An earlierHead is a store that has changed since its head was read.
type earlierHead struct {
	record.Store

	head int64
}

func (s earlierHead) Head(context.Context) (int64, error) { return s.head, nil }

func TestChangesEndAtTheNewestOneOfTheirBeginning(t *testing.T) {
	t.Parallel()
	w, store := watchWorld(t)
	w.site("a", "")
	w.site("b", "")
	head, err := store.Head(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.site("later", "")
	service := catalog.New(earlierHead{store, head}, &validator{}, catalog.Options{})
	var last int64
	for c, err := range service.Changes(w.ctx, 0, tko.KindSite) {
		if err != nil {
			t.Fatal(err)
		}
		last = c.Position
	}
	if last != head {
		t.Errorf("changes end at %d, want %d", last, head)
	}
	for c, err := range w.Changes(w.ctx, 0, tko.KindTemplate) { // ends without a template, too
		t.Errorf("there is %v, %v", c, err)
	}
	for c, err := range w.Changes(w.ctx, -1) {
		t.Errorf("after the newest change there is %v, %v", c, err)
	}
	failed := false
	for _, err := range w.Changes(w.ctx, w.head()+1) {
		failed = errors.Is(err, tko.ErrGone)
	}
	if !failed {
		t.Error("a position beyond the newest change is no error")
	}
}
