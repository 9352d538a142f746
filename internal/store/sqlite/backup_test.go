package sqlite_test

import (
	"database/sql"
	"io"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/backup"
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

func TestOlderBackupKeepsSitesApart(t *testing.T) {
	t.Parallel()
	storetest.OlderBackups(t, archiver(t), archiver(t))
}

func TestOnePromotedStoreCommandsAgents(t *testing.T) {
	t.Parallel()
	storetest.Fences(t, archiver(t), archiver(t), archiver(t))
}

func TestBackupHasEveryColumnOfTheSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT m.name, c.name, c.\"notnull\" = 0 AND c.pk = 0 FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var columns []storetest.SchemaColumn
	for rows.Next() {
		var c storetest.SchemaColumn
		if err := rows.Scan(&c.Table, &c.Name, &c.Null); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	storetest.BackupHasEveryColumn(t, s, columns, nil)
}

func TestArchivesOfOtherStoresHaveTheNewestSchema(t *testing.T) {
	t.Parallel()
	summary, err := archiver(t).Archive(t.Context(), io.Discard, "v1")
	if err != nil || summary.Manifest.Schema != backup.Schema {
		t.Errorf("the newest schema is %d, %v; backup.Schema is %d: raise it with each migration", summary.Manifest.Schema, err, backup.Schema)
	}
}
