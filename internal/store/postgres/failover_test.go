package postgres_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// hostOf returns the host and port of a DSN.
func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// Failovers are what a manager such as Patroni does in its synchronous mode: the primary
// crashes, and its standby, which has all acknowledged writes, is promoted. The DSN names
// both, and the server finds the one that accepts writes.
func TestFailoverLosesNoAcknowledgedWrite(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t)
	standby := primary.Standby()
	dsn := "postgres://tko@" + hostOf(t, primary.DSN()) + "," + hostOf(t, standby.DSN()) + "/postgres?sslmode=disable&target_session_attrs=read-write"
	execute(t, primary.DSN(), "ALTER SYSTEM SET synchronous_standby_names = '*'")
	execute(t, primary.DSN(), "SELECT pg_reload_conf()")
	awaitSynchronous(t, primary)
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	storetest.Outages(t, store, func() {
		primary.Stop(false)
		execute(t, standby.DSN(), "SELECT pg_promote()")
	})
}

func awaitSynchronous(t *testing.T, primary *pgtest.Cluster) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), primary.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	eventually.True(t, "the standby is synchronous", func() bool {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&n)
		return err == nil && n == 1
	})
}
