package spanner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
)

// changesBySlot reads as Changes must not: each slot in a snapshot of its own.
func changesBySlot(ctx context.Context, s *Store, after int64) (changes []tko.Change, err error) {
	last := placeOf(after)
	for slot := range int64(slots) {
		statement := spanner.Statement{
			SQL: "SELECT " + changeColumns + " FROM change AS c WHERE c.shard = @shard AND c.committed >= @last " +
				"AND (c.committed > @last OR c.shard > @slot OR c.shard = @slot AND c.n > @n)",
			Params: map[string]any{"shard": slot, "last": last.At, "slot": last.Slot, "n": last.N},
		}
		err := s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
			c, err := scanChange(row)
			changes = append(changes, c)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(changes, func(a, b tko.Change) int { return int(a.Position - b.Position) })
	return changes, nil
}

// missedBy returns how many changes a watcher misses while writers write.
func missedBy(t *testing.T, read func(ctx context.Context, s *Store, after int64) ([]tko.Change, error)) (missed, written int) {
	t.Helper()
	const writers, commits = 8, 25
	s, err := Open(t.Context(), prefix+spannertest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			for n := range commits {
				w := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: fmt.Sprintf("s%d-%d", i, n)}}}
				if _, err := s.Commit(t.Context(), record.Ungated(w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		wait.Wait()
		close(ended)
	}()
	seen := map[int64]bool{}
	var last int64
	for complete := false; !complete; {
		select {
		case <-ended:
			complete = true // after one more read
		default:
		}
		changes, err := read(t.Context(), s, last)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			seen[c.Position] = true
			last = max(last, c.Position)
		}
	}
	all, err := s.Changes(t.Context(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if !seen[c.Position] {
			missed++
		}
	}
	return missed, len(all)
}

func TestWatcherMissesNothingInOneSnapshot(t *testing.T) {
	missed, written := missedBy(t, func(ctx context.Context, s *Store, after int64) ([]tko.Change, error) {
		return s.Changes(ctx, after, 10_000)
	})
	if missed != 0 || written != 200 {
		t.Errorf("a watcher missed %d of %d changes, want 0 of 200", missed, written)
	}
}

// The mistake that the test above must find: it fails in each run with a snapshot for each slot.
func TestWatcherWithASnapshotForEachSlotMissesChanges(t *testing.T) {
	missed, written := missedBy(t, changesBySlot)
	t.Logf("missed %d of %d", missed, written)
	if missed == 0 {
		t.Error("a watcher with a snapshot for each slot missed nothing: the test of the watcher shows nothing")
	}
}

// A transaction that can't begin is an error, not a panic.
func TestCommitWithoutATransactionIsAnError(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), prefix+spannertest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.client.Close()
	w := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
	if _, err := s.Commit(t.Context(), record.Ungated(w)); err == nil {
		t.Error("the commit succeeded without a transaction")
	}
}
