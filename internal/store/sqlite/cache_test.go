package sqlite_test

import (
	"context"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Lists and other reads have many connections. With large page caches, streaming a large
// store takes far more memory than the rows do.
func TestConnectionsOfReadersHaveSmallCaches(t *testing.T) {
	t.Parallel()
	s := manySites(t)
	checked := 0
	ctx := relational.WithStatementHook(t.Context(), func(tx sqldb.Tx, _ sqldb.Statement) error {
		return tx.Run(context.WithoutCancel(t.Context()), sqldb.Statement{SQL: "PRAGMA cache_size", Scan: func(from sqldb.Row) error {
			var size int
			err := from.Scan(&size)
			checked++
			if size < -4<<10 || size >= 0 {
				t.Errorf("the cache of a list is %d, want at most 4 MiB (a negative number of KiB)", size)
			}
			return err
		}})
	})
	for _, err := range s.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked == 0 {
		t.Error("no cache was checked")
	}
}
