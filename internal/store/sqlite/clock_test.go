package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// Not parallel: all stores of a process share one clock.
func TestDeadlinesSurviveClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	t.Cleanup(func() { sqlite.SetClock(0) })
	offset := time.Duration(0)
	storetest.SetClockBack(t, func(t *testing.T) record.Store { return file(t, path) }, func(by time.Duration) {
		offset += by
		sqlite.SetClock(offset)
	})
}

func TestClockSetForwardReordersNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	t.Cleanup(func() { sqlite.SetClock(0) })
	offset := time.Duration(0)
	storetest.SetClockForward(t, func(t *testing.T) record.Store { return file(t, path) }, func(by time.Duration) {
		offset += by
		sqlite.SetClock(offset)
	})
}
