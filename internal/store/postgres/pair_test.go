package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A write with a new value of a metadata key doesn't read all other values of the key,
// also if the statement was planned before there were any.
func TestNewMetadataValueReadsNoOtherValues(t *testing.T) {
	t.Parallel()
	const values, writes = 20_000, 20
	dsn := pgtest.DSN(t)
	store := open(t, dsn+"&pool_max_conns=4")
	register := func(n int) {
		t.Helper()
		set := &record.Metadata{Effective: map[string]string{"name": fmt.Sprint("site ", n)}}
		_, err := store.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{
			Key: record.Key{Kind: tko.KindSite, ID: fmt.Sprint("site-", n)}, Metadata: set,
		}}))
		if err != nil {
			t.Fatal(err)
		}
	}
	register(0)
	execute(t, dsn, fmt.Sprintf(`
		ALTER TABLE pair SET (autovacuum_enabled = off);
		INSERT INTO pair SELECT 1000000 + i, 'site', 'name', 'other ' || i, 'other ' || i, decode(md5(i::text), 'hex') FROM generate_series(1, %d) i;`, values))
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	scans := func() (scans, read int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), "SELECT sum(idx_scan), sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'pair'").Scan(&scans, &read)
		if err != nil {
			t.Fatal(err)
		}
		return scans, read
	}
	scansBefore, readBefore := scans()
	for n := range writes {
		register(n + 1)
	}
	eventually.True(t, "the database counts its index scans", func() bool {
		n, _ := scans()
		return n >= scansBefore+writes/2
	})
	if _, read := scans(); read-readBefore > values {
		t.Errorf("%d writes read %d entries of the index, want a few each", writes, read-readBefore)
	}
}
