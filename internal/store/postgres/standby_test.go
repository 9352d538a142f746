package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A replicated is a store on a primary with a standby.
type replicated struct {
	*relational.Store
	t                *testing.T
	primary, standby *pgtest.Cluster
	log              *eventually.Buffer
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	primary := pgtest.NewCluster(t)
	first, err := postgres.Open(t.Context(), primary.DSN(), postgres.Options{}) // creates the schema
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	r := &replicated{t: t, primary: primary, standby: primary.Standby(), log: new(eventually.Buffer)}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	if r.Store, err = postgres.Open(t.Context(), primary.DSN(), postgres.Options{Replicas: []string{r.standby.DSN()}, Log: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.write("a")
	r.waitForList(true)
	return r
}

// write registers a site on the primary.
func (r *replicated) write(id string) {
	r.t.Helper()
	_, err := r.Commit(r.t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{
		Key: record.Key{Kind: tko.KindSite, ID: id}, UID: id, Metadata: &record.Metadata{Effective: map[string]string{"of": id}},
	}}))
	if err != nil {
		r.t.Fatal(err)
	}
}

// list lists the sites, and reports whether the list came from the standby.
func (r *replicated) list() (ids []string, onStandby bool) {
	r.t.Helper()
	ctx := relational.WithStatementHook(r.t.Context(), func(tx sqldb.Tx, _ sqldb.Statement) error {
		return tx.Run(r.t.Context(), sqldb.Statement{SQL: "SELECT pg_is_in_recovery()", Scan: func(from sqldb.Row) error { return from.Scan(&onStandby) }})
	})
	for site, err := range r.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindSite, Limit: -1}) {
		if err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, site.ID)
	}
	return ids, onStandby
}

// waitForList waits until lists come from the standby, or from the primary.
func (r *replicated) waitForList(fromStandby bool) {
	r.t.Helper()
	eventually.True(r.t, fmt.Sprintf("lists come from the standby: %v", fromStandby), func() bool {
		_, onStandby := r.list()
		return onStandby == fromStandby
	})
}

// exec runs a statement on the standby.
func (r *replicated) exec(sql string) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.standby.DSN())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(r.t.Context())) }()
	if _, err := conn.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatal(err)
	}
}

// A standby that hasn't replayed the newest change is not read: a list contains
// what was acknowledged before it, also by another server.
func TestListsSeeWhatWasAcknowledgedThoughTheStandbyIsBehind(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.exec("SELECT pg_wal_replay_pause()")
	other := open(t, r.primary.DSN())
	if _, err := other.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "b"}, UID: "b", Metadata: new(record.Metadata)}})); err != nil {
		t.Fatal(err)
	}
	if ids, onStandby := r.list(); strings.Join(ids, " ") != "a b" || onStandby {
		t.Errorf("the list is %v, from the standby: %v", ids, onStandby)
	}
	r.exec("SELECT pg_wal_replay_resume()")
	r.waitForList(true)
	if ids, _ := r.list(); strings.Join(ids, " ") != "a b" {
		t.Errorf("the list is %v", ids)
	}
}

// While the standby is away, lists come from the primary, and from the standby when it
// is back. The log reports both once.
func TestListsComeFromThePrimaryWhileTheStandbyIsAway(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	for _, fast := range []bool{true, false} {
		r.standby.Stop(fast)
		r.write(fmt.Sprintf("while %v", fast))
		if ids, onStandby := r.list(); len(ids) < 2 || onStandby {
			t.Errorf("the list is %v, from the standby: %v", ids, onStandby)
		}
		r.standby.Start()
		r.waitForList(true)
	}
	log := r.log.String()
	if away, back := strings.Count(log, "the replica can't be used"), strings.Count(log, "the replica is used for reads again"); away < 1 || back < 1 || away > 4 {
		t.Errorf("away %d times, back %d times in the log:\n%s", away, back, log)
	}
}

// A standby that was promoted has a history of its own: it is not read.
func TestPromotedStandbyIsNotRead(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.exec("SELECT pg_promote()")
	r.exec("INSERT INTO entity SELECT (jsonb_populate_record(e, '{\"id\": \"forged\"}')).* FROM entity e WHERE id = 'a'")
	r.exec("UPDATE head SET position = position + 1000")
	if ids, onStandby := r.list(); strings.Join(ids, " ") != "a" || onStandby {
		t.Errorf("the list is %v, from the standby: %v", ids, onStandby)
	}
}

// Concurrent reads of single records use the standby, and each sees what was
// acknowledged before it.
func TestConcurrentGetsSeeWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	reads := func() (n int) { // connections whose last statement ended a read of records; lists end with ROLLBACK
		conn, err := pgx.Connect(t.Context(), r.standby.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var wrong sync.Map
	round := func(n int) {
		var all sync.WaitGroup
		for i := range 64 {
			id := fmt.Sprintf("g%d-%d", n, i)
			all.Go(func() {
				key := record.Key{Kind: tko.KindSite, ID: id}
				outcome, err := r.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: key, UID: id, Metadata: &record.Metadata{Effective: map[string]string{"of": id}}}}))
				if err != nil {
					wrong.Store(id, err)
					return
				}
				for range 20 {
					got, err := r.Get(t.Context(), record.Fields{Package: true}, key)
					if err != nil || got[0].Position != outcome[0].Position || got[0].Metadata.Effective["of"] != id {
						wrong.Store(id, fmt.Errorf("%+v: %w", got, err))
					}
				}
			})
		}
		all.Wait()
	}
	n := 0
	eventually.True(t, "gets use the standby", func() bool {
		round(n)
		n++
		return reads() > 0
	})
	wrong.Range(func(id, what any) bool {
		t.Errorf("%v: %v", id, what)
		return true
	})
}

// A replica must be a hot standby of the same database: otherwise reads would return
// another database's state.
func TestReplicaThatIsNoStandbyOfTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t)
	first := open(t, primary.DSN())
	_ = first
	other := pgtest.NewCluster(t)
	open(t, other.DSN())
	tests := map[string]struct{ dsn, want string }{
		"the primary":                   {primary.DSN(), "is not a hot standby"},
		"a standby of another database": {other.Standby().DSN(), "is a standby of another database"},
		"no DSN":                        {"postgres://tko:hunter2@[", "can't be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), primary.DSN(), postgres.Options{Replicas: []string{test.dsn}})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error is %v, want an ErrInvalid with %q", err, test.want)
			}
		})
	}
}

// A replica that is away when the server starts doesn't delay or end the start.
func TestReplicaThatIsAwayAtTheStartIsUsedLater(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	r.standby.Stop(true)
	address, err := url.Parse(r.standby.DSN())
	if err != nil {
		t.Fatal(err)
	}
	log := new(eventually.Buffer)
	s, err := postgres.Open(t.Context(), r.primary.DSN(), postgres.Options{Replicas: []string{r.standby.DSN()}, Log: slog.New(slog.NewTextHandler(log, nil)), Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if !strings.Contains(log.String(), address.Host) {
		t.Errorf("the log is %s, want the replica %s", log, address.Host)
	}
	again := &replicated{Store: s, t: t, primary: r.primary, standby: r.standby}
	again.waitForList(false)
	r.standby.Start()
	again.waitForList(true)
}
