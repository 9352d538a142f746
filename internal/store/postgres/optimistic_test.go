package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// fillLog writes a log of 40,000 revisions of sites, templates and deployments, and the
// records of the deployments.
const fillLog = `
ALTER TABLE change SET (autovacuum_enabled = off);
ALTER TABLE entity SET (autovacuum_enabled = off);
ALTER TABLE audit SET (autovacuum_enabled = off);
INSERT INTO metaset SELECT 1, sha256('1'::bytea), '{}';
INSERT INTO entity SELECT 'deployment', lpad(i::text, 8, '0'), '', 1, i, 0, 0, '', '', '', true, true, NULL, NULL, 1, NULL, false, '', '', NULL
	FROM generate_series(1, 20000) i;
INSERT INTO change (position, kind, id, op, uid, revision, created, updated, parent, template, site, prepared, approved, metaset, crds, who, why)
	SELECT i, CASE WHEN i <= 20000 THEN 'deployment' WHEN i <= 30000 THEN 'site' ELSE 'template' END, lpad(i::text, 8, '0'), 'written', '', 1, 0, 0, '', '', '', true, true, 1, false, '', ''
	FROM generate_series(1, 40000) i;
UPDATE head SET position = 40000, number = 1;
`

// Registrations look up whether the log has their IDs. They read no more of the log if the
// database has no statistics of it, as one that was just filled.
func TestRegistrationsReadLittleOfTheLog(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	execute(t, dsn, fillLog)
	registrations(t, dsn, "", "without statistics")
	registrations(t, dsn, "&plan_cache_mode=force_generic_plan", "without statistics, with generic plans")
	execute(t, dsn, "VACUUM ANALYZE")
	registrations(t, dsn, "", "with statistics")
	registrations(t, dsn, "&plan_cache_mode=force_generic_plan", "with statistics and generic plans")
}

// commits counts transactions of calls that change records.
type commits struct{ optimistic, locked atomic.Int64 }

func (*commits) Transaction(string, time.Duration) {}
func (*commits) Conflicted()                       {}
func (*commits) Failed(string)                     {}
func (c *commits) Committed(_ int, optimistic bool) {
	if optimistic {
		c.optimistic.Add(1)
		return
	}
	c.locked.Add(1)
}

// registrations registers sites and templates one after the other, and checks what their
// transactions read of the log.
func registrations(t *testing.T, dsn, options, when string) {
	t.Helper()
	const n = 20 // so many that PostgreSQL would choose a generic plan
	store, err := postgres.Open(t.Context(), dsn+options, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := readOfLog(t, dsn)
	var done commits
	store.Observe(&done)
	for i := range n {
		for _, kind := range []tko.Kind{tko.KindSite, tko.KindTemplate} {
			w := catalog.Write{Op: tko.OpWritten, Expect: catalog.Absent, Record: catalog.Record{Key: catalog.Key{Kind: kind, ID: fmt.Sprintf("%s/%d", when, i)}}}
			if _, err := store.Commit(t.Context(), w); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
	}
	if err := store.Close(); err != nil { // connections report what they read when they end
		t.Fatal(err)
	}
	if done.optimistic.Load() < n {
		t.Errorf("%s: %d of %d transactions were optimistic: the test doesn't see them", when, done.optimistic.Load(), 2*n)
	}
	eventually.True(t, "the connections have ended", func() bool { return connections(t, dsn) == 0 })
	read := readOfLog(t, dsn) - before
	if limit := int64(10 * n); read > limit {
		t.Errorf("%s: %d registrations read %d entries of the log, want at most %d", when, 2*n, read, limit)
	}
}

// readOfLog returns how many entries of the log and of its indexes were read until now.
func readOfLog(t *testing.T, dsn string) (n int64) {
	t.Helper()
	scanOne(t, dsn, &n, `SELECT t.seq_tup_read + coalesce(t.idx_tup_fetch, 0) + (SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relname = 'change')
		FROM pg_stat_user_tables t WHERE t.relname = 'change'`)
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
