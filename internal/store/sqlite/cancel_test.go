package sqlite_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// If a caller's context ends while a transaction begins, the transaction must not stay
// open: all writers use the same connection.
func TestCancelledCallsLeaveNoTransaction(t *testing.T) {
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
	unclaimed := []tko.FinishedWork{{Item: tko.WorkItem{Queue: tko.QueuePrepare, Key: "k", Claim: "c"}, Outcome: tko.WorkDone}}
	for range 20_000 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range rand.IntN(200) { // shorter than any timer
				runtime.Gosched()
			}
			cancel()
		}()
		_ = s.FinishWork(ctx, unclaimed, nil) // may be cancelled at any point
	}
	if err := s.FinishWork(t.Context(), unclaimed, nil); err != nil {
		t.Errorf("after cancelled calls: %v", err)
	}
}
