package relational_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

var errLost = errors.New("the connection was lost")

// A fault is what happens to an operation of a database.
type fault int

const (
	notSent   fault = iota // the connection is lost before the operation
	unknown                // it is lost before a commit, whose outcome the caller doesn't know
	committed              // it is lost after a commit, whose outcome the caller doesn't know
)

// A faulty database loses its connection at one operation: a beginning, a statement or a
// commit. It counts the operations.
type faulty struct {
	relational.Database

	mutex  sync.Mutex
	count  int // since arm
	at     int // number of the operation that fails, from 1; 0: none
	fault  fault
	failed int // operations that failed since arm

	// Set before the store's next call.
	edit func(*relational.Statement)  // changes statements before they are run; nil: none
	ran  func(s relational.Statement) // called for each statement; nil: none
}

// open opens a store in memory on a faulty database.
func open(t *testing.T) (*relational.Store, *faulty) {
	t.Helper()
	s, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := new(faulty)
	s = s.Wrap(t.Context(), func(db relational.Database) relational.Database {
		f.Database = db
		return f
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, f
}

// arm makes the nth operation from now fail; with 0, none.
func (f *faulty) arm(n int, kind fault) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.count, f.at, f.fault, f.failed = 0, n, kind, 0
}

// disarm returns how many operations failed since arm.
func (f *faulty) disarm() (failed int) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.at = 0
	return f.failed
}

// next counts an operation, and reports whether it fails.
func (f *faulty) next(commit bool) (fails bool, kind fault) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.count++
	if f.count != f.at {
		return false, 0
	}
	f.failed++
	if !commit {
		return true, notSent
	}
	return true, f.fault
}

func (f *faulty) Transient(err error) bool {
	return errors.Is(err, errLost) || f.Database.Transient(err)
}

func (f *faulty) Begin(ctx context.Context, mode relational.Mode) (relational.Tx, error) {
	if fails, _ := f.next(false); fails {
		return nil, errLost
	}
	tx, err := f.Database.Begin(ctx, mode)
	if err != nil {
		return nil, err
	}
	return &faultyTx{tx, f}, nil
}

func (f *faulty) Run(ctx context.Context, s relational.Statement) error {
	if fails, _ := f.next(false); fails {
		return errLost
	}
	return f.Database.Run(ctx, f.edited(s)[0])
}

func (f *faulty) edited(statements ...relational.Statement) []relational.Statement {
	edited := append([]relational.Statement(nil), statements...)
	for i := range edited {
		if f.edit != nil {
			f.edit(&edited[i])
		}
		if f.ran != nil && !edited[i].Idle() {
			f.ran(edited[i])
		}
	}
	return edited
}

type faultyTx struct {
	relational.Tx

	db *faulty
}

func (t *faultyTx) Run(ctx context.Context, statements ...relational.Statement) error {
	if fails, _ := t.db.next(false); fails {
		return errLost
	}
	return t.Tx.Run(ctx, t.db.edited(statements...)...)
}

func (t *faultyTx) Commit(ctx context.Context, statements ...relational.Statement) error {
	fails, kind := t.db.next(true)
	switch {
	case fails && kind == notSent:
		return errLost
	case fails && kind == unknown:
		return &relational.UnknownOutcomeError{Err: errLost}
	}
	err := t.Tx.Commit(ctx, t.db.edited(statements...)...)
	if fails && err == nil {
		err = &relational.UnknownOutcomeError{Err: errLost}
	}
	return err
}
