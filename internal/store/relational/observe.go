package relational

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// An Observer counts what a store does, for metrics. Its methods are called by many
// goroutines, and must return at once.
type Observer interface {
	// Transaction is called at the end of a transaction (read, list or write), and of
	// a single statement (statement).
	Transaction(kind string, took time.Duration)
	// Committed is called after a transaction of calls that change records.
	Committed(calls int, optimistic bool)
	// Conflicted is called when a commit is refused because a record has changed.
	Conflicted()
	// Failed is called for each failed attempt of a transaction or statement, with
	// the reason: full (the disk), transient, unknown (the outcome), or other. Errors
	// of the catalog, such as conflicts, and of contexts that ended are no failures.
	Failed(reason string)
}

// Observe sets the observer of the store.
func (s *Store) Observe(o Observer) { s.observer.Store(&o) }

func (s *Store) observe(what func(Observer)) {
	if o := s.observer.Load(); o != nil {
		what(*o)
	}
}

// failed reports the error of an attempt.
func (s *Store) failed(err error) {
	if err == nil {
		return
	}
	reason := ""
	switch {
	case s.base.Full(err):
		reason = "full"
	case outcomeUnknown(err):
		reason = "unknown"
	case s.base.Transient(err):
		reason = "transient"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), isRefusal(err):
		return
	default:
		reason = "other"
	}
	s.observe(func(o Observer) { o.Failed(reason) })
}

// isRefusal reports whether an error is for users, and not a failure of the database.
func isRefusal(err error) bool {
	for _, kind := range []error{tko.ErrInvalid, tko.ErrNotFound, tko.ErrConflict, tko.ErrBusy, tko.ErrGone, tko.ErrDenied, tko.ErrUnavailable} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// An observed database measures transactions, and notes whether the disk is full.
type observed struct {
	Database

	store *Store
}

var modeNames = map[Mode]string{Read: "read", List: "list", Write: "write"}

func (d observed) Begin(ctx context.Context, mode Mode) (Tx, error) {
	began := time.Now()
	tx, err := d.Database.Begin(ctx, mode)
	if err != nil {
		d.store.noteFull(err)
		return nil, err
	}
	return &observedTx{Tx: tx, store: d.store, mode: mode, began: began}, nil
}

func (d observed) Run(ctx context.Context, statement Statement) error {
	o := d.store.observer.Load()
	if o == nil {
		return d.Database.Run(ctx, statement)
	}
	began := time.Now()
	err := d.Database.Run(ctx, statement)
	(*o).Transaction("statement", time.Since(began))
	return err
}

type observedTx struct {
	Tx

	store *Store
	mode  Mode
	began time.Time
	ended bool
}

func (t *observedTx) Run(ctx context.Context, statements ...Statement) error {
	err := t.Tx.Run(ctx, statements...)
	t.store.noteFull(err)
	return err
}

func (t *observedTx) Commit(ctx context.Context, statements ...Statement) error {
	err := t.Tx.Commit(ctx, statements...)
	t.store.noteFull(err)
	if err == nil {
		if t.mode == Write && len(statements) > 0 {
			t.store.disk.wrote()
		}
		t.end()
	}
	return err
}

func (t *observedTx) Rollback() {
	t.Tx.Rollback()
	t.end()
}

func (t *observedTx) end() {
	if t.ended {
		return
	}
	t.ended = true
	t.store.observe(func(o Observer) { o.Transaction(modeNames[t.mode], time.Since(t.began)) })
}

// settled is the time without failures after which a disk on which a write succeeds
// is no longer considered full.
const settled = 2 * time.Second

// A diskState is whether the disk of a database is full.
type diskState struct {
	mutex sync.Mutex
	full  bool
	since time.Time
	last  time.Time // of the newest failure
}

func (s *Store) noteFull(err error) {
	if err == nil || !s.base.Full(err) {
		return
	}
	d := &s.disk
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.last = time.Now()
	if !d.full {
		d.full, d.since = true, d.last
	}
}

// wrote notes that a write succeeded.
func (d *diskState) wrote() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.full && time.Since(d.last) >= settled {
		d.full = false
	}
}

// DiskFull reports whether the disk of the database is full, and since when. While it
// is, each call tries whether it still is, by a small write, so that the state also
// ends if there are no other writes.
func (s *Store) DiskFull(ctx context.Context) (full bool, since time.Time) {
	d := &s.disk
	d.mutex.Lock()
	full, since = d.full, d.since
	try := full && time.Since(d.last) >= settled
	d.mutex.Unlock()
	if !try {
		return full, since
	}
	tx, err := s.db.Begin(ctx, Write)
	if err == nil {
		defer tx.Rollback()
		err = tx.Commit(ctx, Statement{SQL: "UPDATE head SET collected = collected WHERE one = 1"})
	}
	if err != nil && !s.base.Full(err) {
		return true, since // it may still be
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.full, d.since
}
