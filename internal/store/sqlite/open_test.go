package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// tamper runs a statement on a store's file, without the store.
func tamper(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	file(t, path).Close()
	tamper(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	tamper(t, path, "UPDATE state SET value = '9999' WHERE name = 'compatible'")
	_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err == nil || !strings.Contains(err.Error(), "newer TKO") || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v, want one that names a newer TKO and %s", err, path)
	}
}

func TestFileThatIsNoStoreIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, filepath.Dir(path), filepath.Join(path, "below", "it")} {
		if s, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil {
			t.Errorf("%s was opened, want an error", path)
			s.Close()
		}
	}
}

// schemaOf returns all that a file contains before its first record: the statements of its
// schema, and the rows of its tables, apart from the times of the migrations.
func schemaOf(t *testing.T, path string) []string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	read := func(query string) (lines []string) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				t.Fatal(err)
			}
			var line strings.Builder
			for i, name := range columns {
				if name != "tstamp" {
					fmt.Fprintf(&line, "%s=%v ", name, *values[i].(*any))
				}
			}
			lines = append(lines, line.String())
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	lines := read("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
	for _, table := range read("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name") {
		name := strings.TrimSpace(strings.TrimPrefix(table, "name="))
		for _, row := range read("SELECT * FROM " + name) {
			lines = append(lines, name+": "+row)
		}
	}
	return lines
}

func TestFurtherStoresInMemoryBeginAsMigrated(t *testing.T) {
	t.Parallel()
	opened := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), opened, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := schemaOf(t, opened)
	for i := range 3 {
		m := memory(t)
		if changes, err := m.Changes(t.Context(), 0, 10); err != nil || len(changes) > 0 {
			t.Errorf("store %d in memory begins with %v, %v; want no changes", i, changes, err)
		}
		write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
		if _, err := m.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "store.db")
		if err := sqlite.CreateMigrated(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, schemaOf(t, path)); diff != "" {
			t.Errorf("file %d differs from a migrated one (-want +got):\n%s", i, diff)
		}
	}
}

func TestConcurrentOpensMigrateOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestChangesBeforeRemovedOnesAreGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := file(t, path)
	for _, id := range []string{"a", "b", "c"} {
		write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}}}
		if _, err := s.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
	}
	tamper(t, path, "DELETE FROM change WHERE position <= 2; UPDATE head SET gone = 2")
	tests := map[string]struct {
		why   string
		after int64
		gone  bool
		want  int
	}{
		"from the beginning": {"1 and 2 would be missing", 0, true, 0},
		"after 1":            {"2 would be missing", 1, true, 0},
		"after 2":            {"3 exists", 2, false, 1},
		"after all":          {"nothing is missing", 3, false, 0},
	}
	for name, test := range tests {
		changes, err := s.Changes(t.Context(), test.after, 10)
		if errors.Is(err, tko.ErrGone) != test.gone || len(changes) != test.want {
			t.Errorf("%s: %v, %v: %s", name, changes, err, test.why)
		}
	}
}

func TestClosedStoreFails(t *testing.T) {
	s := memory(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	key := record.Key{Kind: tko.KindSite, ID: "s"}
	if _, err := s.Get(t.Context(), record.Fields{}, key); err == nil {
		t.Error("a read of a closed store succeeded")
	}
	if _, err := s.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: key}})); err == nil {
		t.Error("a write to a closed store succeeded")
	}
}

func TestRecordsStayWhenStoreIsOpenedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	key := record.Key{Kind: tko.KindSite, ID: "s"}
	for n := int64(1); n <= 3; n++ {
		s := file(t, path)
		write := record.Write{Op: tko.OpWritten, Expect: n - 1, Record: record.Record{Key: key, Metadata: &record.Metadata{Effective: map[string]string{"k": "v"}}}}
		if _, err := s.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneStoreCollectsAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := file(t, path)
	write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
	if _, err := s.Commit(t.Context(), record.Ungated(write)); err != nil {
		t.Fatal(err)
	}
	remove := record.Write{Op: tko.OpDeleted, Expect: record.Any, Record: write.Record}
	if _, err := s.Commit(t.Context(), record.Ungated(remove)); err != nil {
		t.Fatal(err)
	}
	keep := record.Retention{Changes: 1, Revisions: 1}
	tamper(t, path, "UPDATE collector SET holder = 'another', until = 9000000000000000")
	if done, err := s.Collect(t.Context(), keep); err != nil || done != (record.Collected{Elsewhere: true}) {
		t.Errorf("got %+v, %v, want Elsewhere: another store holds the lease", done, err)
	}
	tamper(t, path, "UPDATE collector SET until = 1")
	if done, err := s.Collect(t.Context(), keep); err != nil || done.Changes != 2 {
		t.Errorf("got %+v, %v, want 2 changes: the other store's lease has expired", done, err)
	}
}

func TestDataOfSchema30IsReadAfterUpgrade(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldDatabase(t, older(filepath.Join(t.TempDir(), "store.db")))
}

func TestTargetStatesMoveOutOfSourcesOfSchema37(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldTargetStates(t, older(filepath.Join(t.TempDir(), "store.db")))
}

// older returns the database in a file, which a test converts to an older schema.
func older(path string) storetest.OldDatabase {
	return storetest.OldDatabase{
		Open: func(t *testing.T) storetest.Closer {
			t.Helper()
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Run: func(t *testing.T, statement string) {
			t.Helper()
			tamper(t, path, statement)
		},
		Bytes: func(text string) string { return "CAST(" + text + " AS BLOB)" },
	}
}

func TestFlightsThatLackTheMarkKeepSitesApartAfterUpgrade(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldFlights(t, older(filepath.Join(t.TempDir(), "store.db")))
}

// Statistics that were collected once say nothing about the tables as they are later: plans would
// depend on when that was.
func TestStatisticsOfOtherProgramsAreForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	closed(t, file(t, path))
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	file(t, path)
	var tables int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'sqlite_stat%'").Scan(&tables); err != nil || tables != 0 {
		t.Errorf("%d tables of statistics: %v", tables, err)
	}
}

// Older programs don't count entities: their changes make no wrong numbers.
func TestNumbersAreCountedAgainAfterAnOlderProgramWrote(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldNumbers(t, older(filepath.Join(t.TempDir(), "store.db")))
}
