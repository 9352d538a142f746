package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestStatisticsCountItemsAndCallsOfTheStore(t *testing.T) {
	s, err := postgres.Open(t.Context(), pgtest.DSN(t), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	storetest.Statistics(t, s)
}

// A database server whose disk is full refuses changes with a code. The store reports
// that, tells callers, and notices by itself when there is space again.
func TestFullDiskOfTheDatabaseServerIsReportedUntilItEnds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	admin, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	if _, err := admin.Exec(t.Context(), `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
		CREATE TRIGGER full_disk BEFORE UPDATE ON head FOR EACH ROW EXECUTE FUNCTION full_disk()`); err != nil {
		t.Fatal(err)
	}
	register := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := s.Commit(ctx, record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}}}))
		return err
	}
	if err := register("a"); !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "disk of the database is full, nothing was changed: free space") {
		t.Errorf("a change: %v, want that the disk is full, and the remedy", err)
	}
	if full, since := s.DiskFull(t.Context()); !full || since.IsZero() {
		t.Errorf("full: %t since %s", full, since)
	}
	if _, err := s.Head(t.Context()); err != nil {
		t.Errorf("a read: %v", err)
	}
	if _, err := admin.Exec(t.Context(), "DROP TRIGGER full_disk ON head"); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the disk is no longer full", func() bool {
		full, _ := s.DiskFull(t.Context())
		return !full
	})
	if err := register("b"); err != nil {
		t.Errorf("a change after there is space again: %v", err)
	}
}
