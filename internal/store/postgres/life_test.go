package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// lifeVariable is the number of deployments of the long form of the test below.
const lifeVariable = "TKO_LIFE_DEPLOYMENTS"

// In a new database, connections cache plans that were made when the tables were empty.
// However the tables grow after that, without autovacuum, no statement reads more than its
// rows need.
func TestNoStatementReadsMoreAsANewDatabaseGrows(t *testing.T) {
	size := 20_000
	if text := os.Getenv(lifeVariable); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", lifeVariable, err)
		}
	}
	dsn := pgtest.NewFastCluster(t, "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.max=5000").DSN()
	// As few connections as there may be: each of them has made its plans when the day begins.
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{Connections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	admin, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	run(t, admin, "CREATE EXTENSION pg_stat_statements")
	seen := 0
	storetest.Life(t, store, size, func(string) {
		run(t, admin, "SELECT pg_stat_statements_reset()")
	}, func(when string) {
		rows, err := admin.Query(t.Context(), `SELECT query, calls, rows, shared_blks_hit + shared_blks_read, total_exec_time / calls FROM pg_stat_statements
			WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND toplevel`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s statementCost
			if err := rows.Scan(&s.sql, &s.calls, &s.rows, &s.blocks, &s.milliseconds); err != nil {
				t.Fatal(err)
			}
			if !hasPlan(s.sql) {
				continue
			}
			seen++
			if s.blocks > s.allowed() {
				t.Errorf("%s: %v", when, s)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	})
	if seen < 300 {
		t.Errorf("%d statements were examined, want 300 at least", seen)
	}
	t.Logf("%d statements", seen)
}

// A statementCost is what all calls of a statement cost together.
type statementCost struct {
	sql                 string
	calls, rows, blocks int64
	milliseconds        float64 // of one call
}

// The blocks that a statement may read: for each call, those of a batch of keys that aren't
// there, and for each row, those of all indexes of a table.
const (
	blocksPerCall = 800
	blocksPerRow  = 60
)

func (s statementCost) allowed() int64 { return s.calls*blocksPerCall + s.rows*blocksPerRow }

func (s statementCost) String() string {
	return fmt.Sprintf("%d blocks of each of %d calls, which have %d rows in all, in %.2f ms: %s", s.blocks/s.calls, s.calls, s.rows, s.milliseconds, strings.Join(strings.Fields(s.sql), " "))
}
