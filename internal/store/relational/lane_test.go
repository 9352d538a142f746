package relational

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A watched database has every deployment, and "big" ones have more children than one
// step deletes. It records the IDs that each transaction reads, and waits at the first
// one until the test proceeds.
type watched struct {
	Database

	proceed chan struct{}
	groups  [][]string
}

func (*watched) Dialect() sqldb.Dialect { return sqldb.Dialect{} }
func (*watched) Close() error           { return nil }
func (*watched) Transient(error) bool   { return false }

func (d *watched) Begin(context.Context, Mode) (Tx, error) {
	<-d.proceed
	return &watchedTx{db: d}, nil
}

type watchedTx struct{ db *watched }

type watchedRow func(dest ...any) error

func (r watchedRow) Scan(dest ...any) error { return r(dest...) }

func (t *watchedTx) Run(_ context.Context, statements ...Statement) error {
	for _, s := range statements {
		if s.Idle() || s.Scan == nil {
			continue
		}
		var ids []string
		for _, row := range s.Rows {
			ids = append(ids, row[len(row)-1].(string))
		}
		switch {
		case strings.HasSuffix(s.SQL, "WHERE e.kind = r.k AND e.id = r.i") && !strings.Contains(s.SQL, "RECURSIVE"):
			slices.Sort(ids)
			t.db.groups = append(t.db.groups, ids)
			for _, id := range ids {
				if err := s.Scan(watchedRow(func(dest ...any) error {
					*dest[0].(*text), *dest[1].(*text), *dest[3].(*int64) = text(tko.KindDeployment), text(id), 1
					return nil
				})); err != nil {
					return err
				}
			}
		case strings.Contains(s.SQL, "LIMIT 1) AS found"): // which ones have dependents
			for _, id := range ids {
				if !strings.HasPrefix(id, "big") {
					continue
				}
				if err := s.Scan(watchedRow(func(dest ...any) error {
					*dest[0].(*string) = id
					return nil
				})); err != nil {
					return err
				}
			}
		case strings.Contains(s.SQL, "AS found) > $2"): // which ones have more than a step
			if err := s.Scan(watchedRow(func(...any) error { return nil })); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *watchedTx) Commit(ctx context.Context, statements ...Statement) error {
	return t.Run(ctx, statements...)
}

func (*watchedTx) Rollback() {}

// Two deletions of deployments with many descendants run while there are other calls. A writer
// waits for one step at most: steps have transactions of their own, which alternate with
// those of other calls.
func TestWritersWaitForOneStepOfADeletionAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &watched{proceed: make(chan struct{})}
		store := New(t.Context(), db, "watched")
		defer func() { _ = store.Close() }()
		var calls sync.WaitGroup
		submit := func(id string, op tko.Op) {
			calls.Go(func() {
				expect := record.Any
				rec := record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: id}}
				outcomes, err := store.Commit(t.Context(), record.Ungated(record.Write{Op: op, Expect: expect, Record: rec}))
				if err != nil {
					t.Errorf("%s: %v", id, err)
				} else if op == tko.OpDeleted && outcomes[0].More != strings.HasPrefix(id, "big") {
					t.Errorf("%s: outcome is %+v", id, outcomes[0])
				}
			})
			synctest.Wait() // it waits for the committer
		}
		submit("first", tko.OpStatus)
		submit("big 1", tko.OpDeleted)
		submit("small", tko.OpDeleted)
		submit("big 2", tko.OpDeleted)
		submit("a", tko.OpStatus)
		submit("b", tko.OpStatus)
		db.proceed <- struct{}{} // first
		synctest.Wait()
		db.proceed <- struct{}{} // the calls that waited
		synctest.Wait()
		submit("c", tko.OpStatus)
		close(db.proceed)
		calls.Wait()
		want := [][]string{{"first"}, {"a", "b"}, {"big 1", "big 2", "small"}, {"c"}, {"big 2"}}
		if diff := cmp.Diff(want, db.groups); diff != "" {
			t.Errorf("calls of each transaction (-want +got):\n%s", diff)
		}
	})
}
