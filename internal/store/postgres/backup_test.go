package postgres_test

import (
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

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

func TestOlderBackupKeepsSitesApart(t *testing.T) {
	t.Parallel()
	storetest.OlderBackups(t, archiver(t, "sqlite"), archiver(t, "postgres"))
}

func TestOnePromotedStoreCommandsAgents(t *testing.T) {
	t.Parallel()
	storetest.Fences(t, archiver(t, "postgres"), archiver(t, "sqlite"), archiver(t, "postgres"))
}

func TestBackupHasEveryColumnOfTheSchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	rows, err := db.Query(t.Context(), "SELECT c.table_name::text, c.column_name::text, c.is_nullable = 'YES' FROM information_schema.columns c "+
		"JOIN information_schema.tables t USING (table_schema, table_name) WHERE t.table_type = 'BASE TABLE' AND c.table_schema = current_schema()")
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c storetest.SchemaColumn, err error) {
		return c, row.Scan(&c.Table, &c.Name, &c.Null)
	})
	if err != nil {
		t.Fatal(err)
	}
	storetest.BackupHasEveryColumn(t, s, columns, map[string]string{"migrating": "a lock of servers that migrate one database"})
}
