package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// Its positions ascend, and are not dense, unlike those of a file: another store's may be moments.
func TestMemoryStoreKeepsAllPromises(t *testing.T) {
	storetest.Run(t, memory)
}

func TestFileStoreKeepsAllPromises(t *testing.T) {
	storetest.Run(t, func(t *testing.T) record.Store {
		return file(t, filepath.Join(t.TempDir(), "a %23?file.db"))
	})
}

func TestPastOfALongLogEqualsAModel(t *testing.T) {
	t.Parallel()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	s.LeaveGaps(nil) // the model has a state for each position
	storetest.PastOfALongLog(t, s)
}

func memory(t *testing.T) record.Store {
	t.Helper()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

// file opens the store in a file. One that doesn't exist begins as stores in memory do: the tests
// of opening and migrating files (open_test.go, schema_test.go) call Open alone.
func file(t *testing.T, path string) record.Store {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := sqlite.CreateMigrated(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t *testing.T, s record.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestCollectionKeepsContentWrittenMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.CollectWhileWriting(t, func(t *testing.T) record.Store { return file(t, path) })
}
