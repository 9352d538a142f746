package sqlite_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// A caller who goes the moment that a transaction begins must not leave it
// open: all that write use the same connection.
func TestCallersWhoGoLeaveNoTransaction(t *testing.T) {
	t.Parallel()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	nobodys := []tko.FinishedWork{{Item: tko.WorkItem{Queue: tko.QueuePrepare, Key: "k", Claim: "c"}, Outcome: tko.WorkDone}}
	for range 20_000 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range rand.IntN(200) { // shorter than a timer can be
				runtime.Gosched()
			}
			cancel()
		}()
		_ = s.FinishWork(ctx, nobodys, nil) // or not: it is cut off anywhere
	}
	if err := s.FinishWork(t.Context(), nobodys, nil); err != nil {
		t.Errorf("after callers who went: %v", err)
	}
}
