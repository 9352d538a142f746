package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// lossy is a proxy that loses connections at the next few commits.
type lossy struct {
	proxy

	when  atomic.Int64 // a Loss
	times atomic.Int64
	lost  atomic.Int64
}

func newLossy() *lossy {
	l := &lossy{}
	l.Lose = func(sql string) Loss {
		if sql != "COMMIT" || l.times.Add(-1) < 0 {
			return Never
		}
		l.lost.Add(1)
		return Loss(l.when.Load())
	}
	return l
}

// If a connection is lost during a commit, its outcome is unknown. The store reads the
// outcome, so that every call is executed exactly once.
func TestCommitsWithLostConnectionHappenOnce(t *testing.T) {
	losses := map[string]Loss{"before the commit": Before, "after the commit": After}
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLossy()
			store := open(t, l.Start(t, pgtest.DSN(t)))
			storetest.LoseCommits(t, store, func(what string, call func() error) {
				before := l.lost.Load()
				l.when.Store(int64(loss))
				l.times.Store(2)
				err := call()
				l.times.Store(0)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if l.lost.Load() == before {
					t.Errorf("%s: no connection was lost", what)
				}
			})
		})
	}
}

// If the outcome stays unknown, the error reports that.
func TestUnknownOutcomeIsReported(t *testing.T) {
	t.Parallel()
	l := newLossy()
	store := open(t, l.Start(t, pgtest.DSN(t)))
	write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "d"}}}
	if _, err := store.Commit(t.Context(), record.Ungated(write)); err != nil {
		t.Fatal(err)
	}
	l.when.Store(int64(Before))
	l.times.Store(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, _, err := store.StartModification(ctx, "d", "token", time.Hour)
	if !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("error is %v, want one that reports an unknown outcome", err)
	}
}

// The store retries after serialization failures and deadlocks.
func TestTransactionsThatTheDatabaseEndsAreRetried(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := open(t, dsn)
	execute(t, dsn, `
		CREATE SEQUENCE attempts;
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('attempts') % 6 < 2 THEN
				RAISE EXCEPTION 'injected' USING ERRCODE = CASE WHEN lastval() % 6 = 1 THEN '40001' ELSE '40P01' END;
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER fail AFTER UPDATE ON head FOR EACH STATEMENT EXECUTE FUNCTION fail();
		CREATE TRIGGER fail AFTER UPDATE OR DELETE ON work FOR EACH STATEMENT EXECUTE FUNCTION fail();
		CREATE TRIGGER fail AFTER INSERT OR DELETE ON modification FOR EACH STATEMENT EXECUTE FUNCTION fail();`)
	storetest.LoseCommits(t, store, func(what string, call func() error) {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
}

// A database that can't serve a call in time is unavailable: the request is not invalid.
func TestDatabaseErrorsHaveAKind(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := open(t, dsn)
	write := record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "d"}}}
	if _, err := store.Commit(t.Context(), record.Ungated(write)); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]error{"53100": tko.ErrUnavailable, "25006": tko.ErrUnavailable, "55P03": tko.ErrUnavailable, "57014": tko.ErrUnavailable, "22012": nil} {
		execute(t, dsn, `
			CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'secret' USING ERRCODE = '`+code+`'; END $$;
			CREATE OR REPLACE TRIGGER fail AFTER INSERT ON modification FOR EACH STATEMENT EXECUTE FUNCTION fail();`)
		var err error
		// The error usually arrives before the deadline, but on a busy machine the
		// deadline may end an attempt.
		for limit := 500 * time.Millisecond; ; limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, _, err = store.StartModification(ctx, "d", "token", time.Hour)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || limit > time.Minute {
				break
			}
		}
		if err == nil || want != nil && !errors.Is(err, want) || want == nil && errors.Is(err, tko.ErrUnavailable) {
			t.Errorf("%s: error is %v, want the kind %v", code, err, want)
		}
		if want != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the cause, which belongs into the log: %v", code, err)
		}
	}
}

func TestStatementsHaveATimeLimit(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store := open(t, dsn+"&statement_timeout=200ms")
	execute(t, dsn, `
		CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
		CREATE TRIGGER wait AFTER INSERT ON entity FOR EACH ROW WHEN (NEW.id = 'slow') EXECUTE FUNCTION wait();`)
	var wait sync.WaitGroup
	for _, id := range []string{"quick", "slow", "next"} {
		wait.Go(func() {
			_, err := store.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}}}))
			if id == "slow" && !errors.Is(err, tko.ErrUnavailable) || id != "slow" && err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	wait.Wait()
}
