package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func execute(t *testing.T, dsn, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dsn := pgtest.DSN(t)
	execute(t, dsn, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)")
	execute(t, dsn, "UPDATE state SET value = '9999' WHERE name = 'compatible'")
	_, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err == nil || !strings.Contains(err.Error(), "newer TKO") {
		t.Errorf("error is %v, want one that names a newer TKO", err)
	}
}

func TestServersThatStartAtOnceMigrateOnce(t *testing.T) {
	dsn := pgtest.EmptyDSN(t)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if head, err := s.Head(t.Context()); head != 0 || err != nil {
				t.Errorf("head is %d: %v", head, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestErrorsDoNotContainPasswords(t *testing.T) {
	const secret = "hunter2"
	tests := map[string]struct{ why, dsn string }{
		"no server":        {"the error names the address, not the password", "postgres://u:" + secret + "@127.0.0.1:1/db?connect_timeout=1"},
		"key and value":    {"the other form of a DSN", "host=127.0.0.1 port=1 user=u password=" + secret},
		"wrong port":       {"the parser's error contains the URL", "postgres://u:" + secret + "@127.0.0.1:port/db"},
		"wrong escape":     {"the parser's error contains the URL", "postgres://u:" + secret + "%zz@127.0.0.1/db"},
		"wrong option":     {"the value is not an option", "postgres://u:" + secret + "@127.0.0.1/db?sslmode=" + secret},
		"wrong quotes":     {"the other form of a DSN", "password='" + secret},
		"wrong time limit": {"the number is invalid", "postgres://u:" + secret + "@127.0.0.1/db?connect_timeout=x"},
	}
	for name, test := range tests {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := postgres.Open(ctx, test.dsn, postgres.Options{Wait: time.Millisecond})
		cancel()
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error is %v, want one without the password: %s", name, err, test.why)
		}
	}
}

func TestBackendNamesPostgreSQL(t *testing.T) {
	s := open(t, pgtest.DSN(t))
	if b := s.Backend(); !strings.HasPrefix(b, "PostgreSQL ") || len(b) > 40 {
		t.Errorf("the backend is %q, want a short name of PostgreSQL", b)
	}
}

func TestCommitOfAnotherServerSignals(t *testing.T) {
	dsn := pgtest.DSN(t)
	one, other := open(t, dsn), open(t, dsn)
	for n := range int64(5) {
		signal := other.Signal()
		write := record.Write{Op: tko.OpWritten, Expect: n, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
		if _, err := one.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-signal:
		case <-time.After(eventually.Limit):
			t.Fatal("no signal")
		}
	}
}

func TestLostConnectionsAreReplaced(t *testing.T) {
	dsn := pgtest.DSN(t)
	s := open(t, dsn)
	for n := range int64(5) {
		write := record.Write{Op: tko.OpWritten, Expect: n, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
		if _, err := s.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
		execute(t, dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if records, err := s.Get(t.Context(), record.Fields{}, write.Record.Key); err != nil || records[0].Revision != n+1 {
			t.Fatalf("after the connections were lost: %v, %v", records, err)
		}
	}
}

func TestMoreCallersThanConnectionsAreServed(t *testing.T) {
	s := open(t, pgtest.DSN(t))
	var wait sync.WaitGroup
	for i := range 256 {
		wait.Go(func() {
			id := strings.Repeat("x", i+1)
			write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}}}
			if _, err := s.Commit(t.Context(), record.Ungated(write)); err != nil {
				t.Error(err)
			}
			for r, err := range s.List(t.Context(), record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: 1}) {
				if err != nil || r.ID == "" {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

func TestDataOfSchema30IsReadAfterUpgrade(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldDatabase(t, older(pgtest.DSN(t)))
}

func TestTargetStatesMoveOutOfSourcesOfSchema37(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldTargetStates(t, older(pgtest.DSN(t)))
}

// older returns the database of a DSN, which a test converts to an older schema.
func older(dsn string) storetest.OldDatabase {
	return storetest.OldDatabase{
		Open: func(t *testing.T) storetest.Closer {
			t.Helper()
			s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Run: func(t *testing.T, statement string) {
			t.Helper()
			execute(t, dsn, statement)
		},
		Bytes: func(text string) string { return "convert_to(" + text + ", 'UTF8')" },
	}
}

// A list of an older server holds its lock on the table of records for as long as its
// client reads it.
func TestMigrationDuringListStopsNoOtherServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	execute(t, dsn, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
	migrateTo(t, dsn, 48)
	list, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close(context.Background())
	if _, err := list.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM entity"); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	waiting := "SELECT count(*) FROM pg_locks WHERE relation = 'entity'::regclass AND NOT granted"
	eventually.NoError(t, "the migration's wait for the lock", func() error {
		var n int
		if err := list.QueryRow(t.Context(), waiting).Scan(&n); err != nil || n == 0 {
			return fmt.Errorf("%d wait: %w", n, errors.Join(err, errors.New("not yet")))
		}
		return nil
	})
	execute(t, dsn, "SET lock_timeout = '30s'; UPDATE entity SET who = who") // fails if the migration waits on
	if _, err := list.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// migrateTo creates the schema of an older version in an empty database.
func migrateTo(t *testing.T, dsn string, version int64) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	defer func() { _ = db.Close() }()
	migrations, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("migrations"), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrations.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

func TestFlightsThatLackTheMarkKeepSitesApartAfterUpgrade(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldFlights(t, older(pgtest.DSN(t)))
}

// Older programs don't count entities: their changes make no wrong numbers.
func TestNumbersAreCountedAgainAfterAnOlderProgramWrote(t *testing.T) {
	t.Parallel()
	storetest.UpgradeOldNumbers(t, older(pgtest.DSN(t)))
}
