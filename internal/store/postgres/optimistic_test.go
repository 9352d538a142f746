package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Registrations look up whether the log has their IDs. In a new database, whose tables
// have no statistics, none of them reads the log of all registrations before it.
func TestRegistrationsReadLittleOfTheLog(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{
		"default": "", "generic plans": "&plan_cache_mode=force_generic_plan", "custom plans": "&plan_cache_mode=force_custom_plan",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 100
			dsn := pgtest.DSN(t)
			execute(t, dsn, "ALTER TABLE change SET (autovacuum_enabled = off); ALTER TABLE entity SET (autovacuum_enabled = off)")
			store, err := postgres.Open(t.Context(), dsn+options, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var done commits
			store.Observe(&done)
			for i := range n {
				kind := []tko.Kind{tko.KindSite, tko.KindTemplate}[i%2]
				w := record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: record.Record{Key: record.Key{Kind: kind, ID: strconv.Itoa(i)}}}
				if _, err := store.Commit(t.Context(), record.Ungated(w)); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.Close(); err != nil { // connections report what they have read when they end
				t.Fatal(err)
			}
			if optimistic := done.optimistic.Load(); optimistic < n/2 {
				t.Errorf("%d of %d transactions were optimistic: the test doesn't see them", optimistic, n)
			}
			if read := readOf(t, dsn, "change"); read > 5*n {
				t.Errorf("%d registrations read %d entries of the log, want at most %d", n, read, 5*n)
			}
		})
	}
}

// commits counts transactions that were committed without the lock.
type commits struct{ optimistic atomic.Int64 }

func (*commits) Transaction(string, time.Duration) {}
func (*commits) Conflicted()                       {}
func (*commits) Failed(string)                     {}
func (c *commits) Committed(_ int, optimistic bool) {
	if optimistic {
		c.optimistic.Add(1)
	}
}

// Templates and sites are read with the IDs of their deployments. In a database without
// statistics, such as one that was just filled, not all deployments are read for that.
func TestReadsOfSitesReadTheirOwnDeployments(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	execute(t, dsn, `ALTER TABLE entity SET (autovacuum_enabled = off);
		INSERT INTO metaset VALUES (1, '', '{}');
		INSERT INTO entity SELECT 'site', i::text, '', 1, i, 0, 0, '', '', '', false, false, NULL, NULL, 1, NULL, false, '', '', NULL FROM generate_series(0, 99) i;
		INSERT INTO entity SELECT 'deployment', lpad(i::text, 8, '0'), '', 1, i, 0, 0, '', '', (i % 100)::text, true, true, NULL, NULL, 1, NULL, false, '', '', NULL
			FROM generate_series(0, 1999) i`)
	for name, options := range map[string]string{
		"default": "", "generic plans": "&plan_cache_mode=force_generic_plan", "custom plans": "&plan_cache_mode=force_custom_plan",
	} {
		before := readOf(t, dsn, "entity")
		store, err := postgres.Open(t.Context(), dsn+options, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i := range 10 {
			records, err := store.Get(t.Context(), record.Fields{Deployments: true, Scope: access.ScopeAll}, record.Key{Kind: tko.KindSite, ID: strconv.Itoa(i)})
			if err != nil {
				t.Fatal(err)
			}
			found += len(records[0].Deployments)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if read := readOf(t, dsn, "entity") - before; found != 200 || read > 1000 {
			t.Errorf("%s: 10 sites with %d deployments, want 200, were read from %d entries, want at most 1,000", name, found, read)
		}
	}
}

// readOf returns how many entries of a table and of its indexes were read until now. It
// waits for the end of all connections, because they report what they have read then.
func readOf(t *testing.T, dsn, table string) (n int64) {
	t.Helper()
	eventually.True(t, "the connections have ended", func() bool { return connections(t, dsn) == 0 })
	scanOne(t, dsn, &n, fmt.Sprintf(`SELECT t.seq_tup_read + coalesce(t.idx_tup_fetch, 0) + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relname = t.relname)
		FROM pg_stat_user_tables t WHERE t.relname = '%s'`, table))
	return n
}

// connections returns the number of connections to the database.
func connections(t *testing.T, dsn string) (n int64) {
	t.Helper()
	scanOne(t, dsn, &n, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	return n
}

func scanOne(t *testing.T, dsn string, to *int64, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if err := conn.QueryRow(t.Context(), sql).Scan(to); err != nil {
		t.Fatal(err)
	}
}
