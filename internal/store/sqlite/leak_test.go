package sqlite_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// A closed store has no open files: SQLite retains those of a connection with statements.
func TestClosedStoreHasNoOpenFiles(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux lists the open files of a process")
		return
	}
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 10 {
		store, err := sqlite.OpenMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range store.List(t.Context(), catalog.Query{Kind: tko.KindSite, Scope: access.ScopeAll, Limit: -1}) {
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
