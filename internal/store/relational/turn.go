package relational

import (
	"context"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Lists hold a connection and a snapshot for as long as whoever takes their
// rows likes. One whose rows nobody takes loses them: soon if others wait to
// list, and in the end in any case, because databases keep what a snapshot
// sees.
const (
	// maxIdle is how long a list may wait for its next row to be taken, while
	// others wait.
	maxIdle = 3 * time.Second
	// maxChunk is how long a list may wait for all the rows that it has read to
	// be taken, while others wait.
	maxChunk = 30 * time.Second
	// maxStall is how long it may, if nobody waits.
	maxStall = 10 * time.Minute
	// waitStep is how long to wait before somebody else's turn is ended.
	waitStep = time.Second
)

// A turn is a list's transaction, which others may end while its rows wait to
// be taken.
type turn struct {
	store *Store
	timer *time.Timer

	mutex   sync.Mutex
	tx      Tx
	offered time.Time // when the rows that it has read were offered; zero: it is at work
	taken   time.Time // when the last was taken
	lost    time.Duration
}

// listTurn waits for a transaction that lists. While it does, lists whose rows
// nobody takes are ended.
func (s *Store) listTurn(ctx context.Context) (*turn, error) {
	begun := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		ticker := time.NewTicker(waitStep)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.endStalled()
			case <-begun:
				return
			}
		}
	})
	tx, err := s.db.Begin(ctx, List)
	close(begun)
	waiting.Wait()
	if err != nil {
		return nil, err
	}
	t := &turn{store: s, tx: tx}
	s.turnsMutex.Lock()
	s.turns[t] = true
	s.turnsMutex.Unlock()
	t.timer = time.AfterFunc(maxStall, func() { t.endIf(maxStall, maxStall) })
	return t, nil
}

// endStalled ends the turn that has been stalled for the longest time, if that
// is long enough.
func (s *Store) endStalled() {
	s.turnsMutex.Lock()
	var longest *turn
	var since time.Time
	for t := range s.turns {
		if at := t.stalled(maxIdle, maxChunk); !at.IsZero() && (longest == nil || at.Before(since)) {
			longest, since = t, at
		}
	}
	s.turnsMutex.Unlock()
	if longest != nil {
		longest.endIf(maxIdle, maxChunk)
	}
}

// stalled says since when nobody took a row, if that is too long; else zero.
func (t *turn) stalled(idle, chunk time.Duration) time.Time {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.tx == nil || t.offered.IsZero() || time.Since(t.taken) < idle && time.Since(t.offered) < chunk {
		return time.Time{}
	}
	return t.taken
}

// endIf ends the turn if its rows are not taken.
func (t *turn) endIf(idle, chunk time.Duration) {
	if since := t.stalled(idle, chunk); since.IsZero() {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		if t.tx != nil {
			t.timer.Reset(maxStall)
		}
		return
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.tx == nil || t.offered.IsZero() { // it went on just now
		return
	}
	t.lost = time.Since(t.taken)
	t.finish()
}

// end ends the turn.
func (t *turn) end() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.tx != nil {
		t.finish()
	}
}

// finish ends the transaction. The mutex is held.
func (t *turn) finish() {
	t.timer.Stop()
	t.tx.Rollback()
	t.tx = nil
	t.store.turnsMutex.Lock()
	delete(t.store.turns, t)
	t.store.turnsMutex.Unlock()
}

// run runs statements, if the turn isn't over.
func (t *turn) run(ctx context.Context, statements ...Statement) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.offered = time.Time{}
	if t.tx == nil {
		return errLost
	}
	if len(statements) == 0 {
		return nil
	}
	if look, ok := ctx.Value(lookKey{}).(func(Tx, Statement) error); ok {
		for _, s := range statements {
			if err := look(t.tx, s); err != nil {
				return err
			}
		}
	}
	return t.tx.Run(ctx, statements...)
}

// offer says that rows are offered from now on.
func (t *turn) offer() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.offered = time.Now()
	t.taken = t.offered
}

// took says that a row was taken.
func (t *turn) took() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.taken = time.Now()
}

// errLost is what a list that lost its turn ends with.
var errLost = tko.Errorf(tko.ErrBusy, "the list was not read in time")

// lostAt says where a list that lost its turn may be continued.
func lostAt(after string) error {
	return tko.Errorf(tko.ErrBusy, "the list was ended because its rows were not taken in time, and what it held was needed: "+
		"read faster, and go on after %q (the cursor of the window), which lists what is there then", after)
}

type lookKey struct{}

// WithLook answers a context in which look is called before every statement of
// a list, in its transaction: for tests that look at how the database runs
// them.
func WithLook(ctx context.Context, look func(tx Tx, s Statement) error) context.Context {
	return context.WithValue(ctx, lookKey{}, look)
}
