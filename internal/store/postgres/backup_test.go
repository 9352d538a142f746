package postgres_test

import (
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func archiver(t *testing.T, kind string) storetest.Archiver {
	t.Helper()
	var s interface {
		storetest.Archiver
		Close() error
	}
	var err error
	if kind == "sqlite" {
		s, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlite.Options{})
	} else {
		s, err = postgres.Open(t.Context(), pgtest.DSN(t), postgres.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestBackupIsRestoredIntoTheSameAndTheOtherDatabase(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"postgres", "postgres"}, {"postgres", "sqlite"}, {"sqlite", "postgres"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			storetest.Backups(t, archiver(t, pair[0]), archiver(t, pair[1]))
		})
	}
}

func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	storetest.DamagedBackups(t, archiver(t, "sqlite"), archiver(t, "postgres"))
}
