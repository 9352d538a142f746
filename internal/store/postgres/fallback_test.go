package postgres_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Statements that PostgreSQL refuses with the errors of databases that lack a feature.
const (
	notSupported     = "SELECT DISTINCT 1 FOR UPDATE"  // 0A000
	syntaxError      = "SELECT FROM WHERE"             // 42601
	undefinedName    = "SELECT no_such_function()"     // 42883
	undefinedSetting = "SET no_such_setting_of = 'us'" // 42704
)

// without replaces statements that compatible databases may not support.
func without(sql string) string {
	for _, missing := range []struct{ feature, replacement string }{
		{"SKIP LOCKED", syntaxError},
		{"LATERAL", syntaxError},
		{"LISTEN", notSupported},
		{"NOTIFY", syntaxError},
		{"pg_notify", undefinedName},
		{"advisory", undefinedName},
		{"enable_", undefinedSetting},
		{"jit", undefinedSetting},
		{"_timeout", undefinedSetting},
		{"COLLATE", syntaxError},
		{"pg_am", undefinedName},
		{"USING hash", syntaxError},
	} {
		if strings.Contains(sql, missing.feature) {
			return missing.replacement
		}
	}
	return sql
}

func TestStoreKeepsAllPromisesWithoutOptionalFeatures(t *testing.T) {
	r := new(recorder)
	p := r.proxy(without)
	t.Run("promises", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) record.Store { return open(t, p.Start(t, pgtest.DSN(t))) })
	})
	t.Run("an empty database", func(t *testing.T) {
		s := open(t, p.Start(t, pgtest.EmptyDSN(t)))
		if head, err := s.Head(t.Context()); head != 0 || err != nil {
			t.Errorf("head is %d: %v", head, err)
		}
	})
	t.Run("grammar", r.checkGrammar)
}

// Connection poolers in transaction mode accept LISTEN, and never deliver notifications.
func TestSignalsArriveIfListenHasNoEffect(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := &proxy{Rewrite: func(sql string) string { return strings.ReplaceAll(sql, "LISTEN tko", "LISTEN unused") }}
	log := new(eventually.Buffer)
	deaf, err := postgres.Open(t.Context(), p.Start(t, dsn), postgres.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	other := open(t, dsn)
	for n := range int64(3) {
		signal := deaf.Signal()
		write := record.Write{Op: tko.OpWritten, Expect: n, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}}}
		if _, err := other.Commit(t.Context(), record.Ungated(write)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.After(eventually.Limit); ; {
			select {
			case <-signal:
			case <-deadline:
				t.Fatalf("no signal; the log is %s", log)
			}
			if strings.Contains(log.String(), "pooler") {
				break
			}
			signal = deaf.Signal() // the first signal is of the start
		}
	}
}
