package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A store collects the statistics of tables that have grown, of those only, and of all that
// have none when it begins. Autovacuum is off in the server of these tests.
func TestStatisticsOfGrownTablesAreCollected(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	rows := func(table string) (n int) {
		t.Helper()
		if err := c.QueryRow(t.Context(), "SELECT reltuples::bigint FROM pg_class WHERE oid = $1::regclass", table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := open(t, dsn)
	written := map[tko.Kind]int{}
	write := func(kind tko.Kind, site string, n int) {
		t.Helper()
		for written[kind] < n {
			var writes []record.Write
			for range 50 {
				r := record.Record{Key: record.Key{Kind: kind, ID: fmt.Sprint(kind, written[kind])}, UID: "u", Site: site, Metadata: &record.Metadata{}}
				writes = append(writes, record.Write{Op: tko.OpWritten, Record: r})
				written[kind]++
			}
			if _, err := s.Commit(t.Context(), record.Ungated(writes...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(tko.KindSite, "", 1_000)
	eventually.True(t, "statistics of sites", func() bool { return rows("entity") > 0 && rows("change") > 0 })
	if _, err := c.Exec(t.Context(), "ANALYZE entity"); err != nil { // whenever the store did it
		t.Fatal(err)
	}
	// The table grows less than fivefold, and the index of what is at sites was empty.
	write(tko.KindDeployment, "site1", 1_500)
	eventually.True(t, "statistics of an index", func() bool { return rows("entity_by_site") > 0 })
	write(tko.KindSite, "", 16_000)
	eventually.True(t, "statistics of many times as many", func() bool { return rows("entity") >= 5_000 })
	var most int
	if err := c.QueryRow(t.Context(), "SELECT max(analyze_count) FROM pg_stat_user_tables").Scan(&most); err != nil {
		t.Fatal(err)
	}
	if most > 7 { // of the table and its indexes, at eight pages, at forty and at two hundred
		t.Errorf("the statistics of a table were collected %d times, want once for each fivefold growth", most)
	}

	// An upgrade of the server loses the statistics of columns.
	if _, err := c.Exec(t.Context(), "DELETE FROM pg_statistic WHERE starelid = 'entity'::regclass"); err != nil {
		t.Fatal(err)
	}
	open(t, dsn)
	eventually.True(t, "the statistics that were lost", func() bool {
		var n int
		err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stats WHERE tablename = 'entity'").Scan(&n)
		return err == nil && n > 0
	})
}
