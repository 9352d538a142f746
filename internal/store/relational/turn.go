package relational

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	maxIdle = 2 * time.Second
	// maxChunk is how long a list may wait for all the rows that it has read to
	// be taken, while others wait.
	maxChunk = 30 * time.Second
	// maxStall is how long it may, if nobody waits.
	maxStall = 10 * time.Minute
	// waitStep is how long to wait before somebody else's turn is ended.
	waitStep = 500 * time.Millisecond
)

// A turn is a list's transaction, which others may end while its rows wait to
// be taken.
type turn struct {
	store *Store
	timer *time.Timer
	began time.Time

	// When rows were offered, and when the last was taken, since it began.
	// Nothing is offered while whoever takes the rows waits for more of them.
	// They are looked at while a statement runs, which holds the mutex.
	offered atomic.Int64
	taken   atomic.Int64

	mutex sync.Mutex
	tx    Tx
}

// notOffered is when rows were offered that were not.
const notOffered = -1

// listTurn waits for a transaction that lists. While it does, lists whose rows
// nobody takes are ended.
func (s *Store) listTurn(ctx context.Context) (*turn, error) {
	s.addWaiting(1)
	begun := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
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
	s.addWaiting(-1)
	close(begun)
	watching.Wait()
	if err != nil {
		return nil, err
	}
	t := &turn{store: s, tx: tx, began: time.Now()}
	t.offered.Store(notOffered)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.timer = time.AfterFunc(maxStall, t.watch)
	s.turnsMutex.Lock()
	defer s.turnsMutex.Unlock()
	s.turns[t] = true
	return t, nil
}

func (s *Store) addWaiting(n int) {
	s.turnsMutex.Lock()
	defer s.turnsMutex.Unlock()
	s.waiting += n
}

// endStalled ends as many turns as there are lists that wait for one: those
// that have been stalled for the longest time, if that is long enough.
func (s *Store) endStalled() {
	s.turnsMutex.Lock()
	turns := slices.Collect(maps.Keys(s.turns))
	waiting := s.waiting
	s.turnsMutex.Unlock() // turns lock it while they are locked themselves
	since := map[*turn]time.Time{}
	turns = slices.DeleteFunc(turns, func(t *turn) bool {
		since[t] = t.began.Add(time.Duration(t.taken.Load()))
		return !t.stuck(maxIdle, maxChunk)
	})
	slices.SortFunc(turns, func(a, b *turn) int { return since[a].Compare(since[b]) })
	for _, t := range turns[:min(waiting, len(turns))] {
		t.endIf(maxIdle, maxChunk)
	}
}

// endIf ends the turn if its rows are not taken.
func (t *turn) endIf(idle, chunk time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.tx != nil && t.stuck(idle, chunk) {
		t.finish()
	}
}

// watch ends the turn in the end, if its rows are not taken.
func (t *turn) watch() {
	t.endIf(maxStall, maxStall)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.tx != nil {
		t.timer.Reset(maxStall)
	}
}

// stuck says whether rows wait for too long to be taken.
func (t *turn) stuck(idle, chunk time.Duration) bool {
	offered, now := t.offered.Load(), time.Since(t.began)
	return offered != notOffered && (now-time.Duration(t.taken.Load()) >= idle || now-time.Duration(offered) >= chunk)
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
	if t.tx == nil {
		return errLost
	}
	if len(statements) == 0 {
		return nil
	}
	if look, ok := ctx.Value(lookKey{}).(func(Tx, Statement) error); ok {
		for _, s := range statements {
			s.SQL = s.Render(&t.store.dialect)
			if err := look(t.tx, s); err != nil {
				return err
			}
		}
	}
	return t.tx.Run(ctx, statements...)
}

// offer says that rows are offered from now on.
func (t *turn) offer() {
	now := int64(time.Since(t.began))
	t.taken.Store(now)
	t.offered.Store(now)
}

// took says that a row was taken.
func (t *turn) took() { t.taken.Store(int64(time.Since(t.began))) }

// await says that all rows were taken, and more are waited for.
func (t *turn) await() { t.offered.Store(notOffered) }

// errLost is what a list that lost its turn ends with.
var errLost = tko.Errorf(tko.ErrBusy, "the list was not read in time")

// lostAt says where a list that lost its turn may be continued.
func lostAt(after string) error {
	return tko.Errorf(tko.ErrBusy, "the list was ended because its rows were not taken in time, and what it held was needed: "+
		"read faster, and go on after %q (the cursor of the window), which lists what is there then", after)
}

type lookKey struct{}

// WithStatementHook answers a context in which look is called before every statement of
// a list, with the SQL that the database gets, in its transaction: for tests
// that look at how the database runs it.
func WithStatementHook(ctx context.Context, look func(tx Tx, s Statement) error) context.Context {
	return context.WithValue(ctx, lookKey{}, look)
}
