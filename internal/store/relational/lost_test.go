package relational

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

var errConnection = errors.New("the connection is gone")

// A patchy database loses its connection at commits, as the test configures.
type patchy struct {
	Database

	commits int                             // number of commits so far
	commit  func(n int) error               // result of the nth commit, from 1
	run     func(ctx context.Context) error // result of other statements, after the first commit
	begin   func(ctx context.Context) error
}

func (*patchy) Dialect() sqldb.Dialect   { return sqldb.Dialect{} }
func (*patchy) Close() error             { return nil }
func (*patchy) Transient(err error) bool { return errors.Is(err, errConnection) }

func (p *patchy) Begin(ctx context.Context, _ Mode) (Tx, error) {
	time.Sleep(100 * time.Millisecond)
	if p.commits > 0 && p.begin != nil {
		if err := p.begin(ctx); err != nil {
			return nil, err
		}
	}
	return patchyTx{p}, nil
}

func (*patchy) Full(error) bool { return false }

type patchyTx struct{ p *patchy }

func (t patchyTx) Run(ctx context.Context, _ ...Statement) error {
	if t.p.commits > 0 && t.p.run != nil {
		return t.p.run(ctx)
	}
	return nil
}

func (t patchyTx) Commit(context.Context, ...Statement) error {
	t.p.commits++
	return t.p.commit(t.p.commits)
}

func (patchyTx) Rollback() {}

func lose(int) error { return &UnknownOutcomeError{Err: errConnection} }

func loseOnce(then error) func(int) error {
	return func(n int) error {
		if n == 1 {
			return lose(n)
		}
		return then
	}
}

func untilGivenUp(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// While the outcome of a commit is unknown, the client receives an error that reports it,
// whatever prevents TKO from finding out. Otherwise, it receives the outcome.
func TestLostCommitReportsItsOutcomeOrThatItIsUnknown(t *testing.T) {
	refusal := tko.Errorf(tko.ErrConflict, "another caller has it")
	slow := &AwayError{"too slow", errors.New("statement timeout")}
	tests := map[string]struct {
		db     patchy
		decide error // result of the change when it is run again
		open   bool  // the outcome stays unknown
		want   error
	}{
		"connection lost at every commit":      {db: patchy{commit: lose}, open: true},
		"cancelled while it waits to begin":    {db: patchy{commit: lose, begin: untilGivenUp}, open: true},
		"cancelled while it reads the outcome": {db: patchy{commit: lose, run: untilGivenUp}, open: true},
		"database away afterwards":             {db: patchy{commit: lose, run: func(context.Context) error { return errConnection }}, open: true},
		"database too slow afterwards":         {db: patchy{commit: lose, run: func(context.Context) error { return slow }}, open: true},
		"database broken afterwards":           {db: patchy{commit: lose, begin: func(context.Context) error { return errors.New("no such table") }}, open: true},
		"outcome read: committed":              {db: patchy{commit: loseOnce(nil)}},
		"outcome read: refused":                {db: patchy{commit: loseOnce(nil)}, decide: refusal, want: refusal},
		"not committed, then refused":          {db: patchy{commit: loseOnce(refusal)}, want: refusal},
		"not committed, then away":             {db: patchy{commit: loseOnce(errConnection)}, want: tko.ErrUnavailable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := New(t.Context(), &test.db, "patchy")
				defer func() { _ = store.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := store.write(ctx, func(tx Tx) ([]Statement, error) {
					if err := tx.Run(ctx); err != nil {
						return nil, err
					}
					if test.db.commits > 0 {
						return nil, test.decide
					}
					return nil, nil
				})
				unknown := err != nil && strings.Contains(err.Error(), "is not known")
				switch {
				case unknown != test.open:
					t.Errorf("the error reports an unknown outcome: %t, want %t: %v", unknown, test.open, err)
				case test.open && !errors.Is(err, tko.ErrUnavailable):
					t.Errorf("error is %v, want tko.ErrUnavailable", err)
				case !test.open && !errors.Is(err, test.want):
					t.Errorf("error is %v, want %v", err, test.want)
				}
				// Where no statement hangs, the error arrives before the caller's deadline.
				if test.db.begin == nil && test.db.run == nil && ctx.Err() != nil {
					t.Error("the error arrived after the deadline")
				}
			})
		})
	}
}
