package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func archiver(t *testing.T) storetest.Archiver {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	storetest.Backups(t, archiver(t), archiver(t))
}

func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	storetest.DamagedBackups(t, archiver(t), archiver(t))
}
