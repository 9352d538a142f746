package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

func TestDeadlinesSurviveClockSetBack(t *testing.T) {
	t.Parallel()
	storetest.SetClockBack(withClock(t))
}

func TestClockSetForwardReordersNothing(t *testing.T) {
	t.Parallel()
	storetest.SetClockForward(withClock(t))
}

// withClock returns what opens stores on a database whose clock step moves.
func withClock(t *testing.T) (_ *testing.T, opened func(t *testing.T) record.Store, step func(by time.Duration)) {
	t.Helper()
	dsn := pgtest.DSN(t)
	db, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	run := func(statement string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	run("CREATE SCHEMA fake")
	run("CREATE TABLE fake.clock (ahead interval NOT NULL)")
	run("INSERT INTO fake.clock VALUES ('0')")
	run("CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM fake.clock'")
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "public,fake,pg_catalog")
	u.RawQuery = query.Encode()
	offset := time.Duration(0)
	return t, func(t *testing.T) record.Store { return open(t, u.String()) }, func(by time.Duration) {
		offset += by
		run(fmt.Sprintf("UPDATE fake.clock SET ahead = '%d seconds'", int(offset.Seconds())))
	}
}
