package sqlite_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// openFiles returns the number of files that the process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Tests open thousands of stores in memory, most of which are read by few callers at once.
func TestStoresInMemoryConnectWhenTheyAreRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux lists the open files of a process")
		return
	}
	const stores = 10
	before := openFiles(t)
	for range stores {
		s := memory(t)
		for range 20 { // one after the other, so by the same connection
			if _, err := s.Changes(t.Context(), 0, 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The file, its log and its index, of two connections.
	if opened := openFiles(t) - before; opened > 8*stores {
		t.Errorf("%d stores have opened %d files", stores, opened)
	}
}

// A closed store has no open files: SQLite retains those of a connection with statements.
func TestClosedStoreHasNoOpenFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux lists the open files of a process")
		return
	}
	count := func() int { return openFiles(t) }
	before := count()
	for range 10 {
		store, err := sqlite.OpenMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range store.List(t.Context(), record.Query{Kind: tko.KindSite, Scope: access.ScopeAll, Limit: -1}) {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	after := count()
	for i := 0; i < 50 && after > before; i++ { // other tests run, and close files
		time.Sleep(10 * time.Millisecond)
		after = count()
	}
	if after > before+5 {
		t.Errorf("%d files are open after 10 stores were closed, %d before", after, before)
	}
}
