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

// A list holds a connection and a snapshot for as long as its client takes to read
// the rows. If the client doesn't read, the list loses both: soon if other lists
// wait, and at some time in any case, because databases retain all rows that a
// snapshot sees.
const (
	// maxRowWait is the time limit for a client to read the next row, while other
	// lists wait.
	maxRowWait = 2 * time.Second
	// maxChunkWait is the time limit for a client to read all rows of a chunk,
	// while other lists wait.
	maxChunkWait = 30 * time.Second
	// maxStall is the time limit for a client to read a chunk if no list waits.
	maxStall = 10 * time.Minute
	// stallCheckInterval is the interval at which a list that waits ends stalled
	// leases.
	stallCheckInterval = 500 * time.Millisecond
)

// A snapshotLease is the transaction of a list. While its rows wait to be read, other
// lists may end it.
type snapshotLease struct {
	store *Store
	timer *time.Timer
	began time.Time

	// Times since began: when rows were offered to the client, and when it read the
	// last one. While the client waits for more rows, none are offered. They are
	// read without the mutex, which is held while a statement runs.
	offered atomic.Int64
	taken   atomic.Int64

	mutex sync.Mutex
	tx    Tx
}

// notOffered is the value of offered while no rows are offered.
const notOffered = -1

// leaseSnapshot waits for a transaction for a list. While it waits, it ends stalled
// leases.
func (s *Store) leaseSnapshot(ctx context.Context) (*snapshotLease, error) {
	s.addWaiting(1)
	begun := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(stallCheckInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.endStalledLeases()
			case <-begun:
				return
			}
		}
	})
	tx, err := s.beginList(ctx)
	s.addWaiting(-1)
	close(begun)
	watching.Wait()
	if err != nil {
		return nil, err
	}
	l := &snapshotLease{store: s, tx: tx, began: time.Now()}
	l.offered.Store(notOffered)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.timer = time.AfterFunc(maxStall, l.checkStall)
	s.leasesMutex.Lock()
	defer s.leasesMutex.Unlock()
	s.leases[l] = true
	return l, nil
}

func (s *Store) addWaiting(n int) {
	s.leasesMutex.Lock()
	defer s.leasesMutex.Unlock()
	s.waiting += n
}

// endStalledLeases ends as many leases as there are lists that wait for one: those
// that have been stalled longest, and longer than the limits.
func (s *Store) endStalledLeases() {
	s.leasesMutex.Lock()
	leases := slices.Collect(maps.Keys(s.leases))
	waiting := s.waiting
	s.leasesMutex.Unlock() // leases lock it while they hold their own mutex
	lastTaken := map[*snapshotLease]time.Time{}
	leases = slices.DeleteFunc(leases, func(l *snapshotLease) bool {
		lastTaken[l] = l.began.Add(time.Duration(l.taken.Load()))
		return !l.stalled(maxRowWait, maxChunkWait)
	})
	slices.SortFunc(leases, func(a, b *snapshotLease) int { return lastTaken[a].Compare(lastTaken[b]) })
	for _, l := range leases[:min(waiting, len(leases))] {
		l.endIfStalled(maxRowWait, maxChunkWait)
	}
}

// endIfStalled ends the lease if its rows are not read.
func (l *snapshotLease) endIfStalled(idle, chunk time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.tx != nil && l.stalled(idle, chunk) {
		l.release()
	}
}

// checkStall ends the lease if its rows were not read for maxStall, and otherwise
// checks again after that time.
func (l *snapshotLease) checkStall() {
	l.endIfStalled(maxStall, maxStall)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.tx != nil {
		l.timer.Reset(maxStall)
	}
}

// stalled reports whether rows have waited to be read for longer than a limit.
func (l *snapshotLease) stalled(idle, chunk time.Duration) bool {
	offered, now := l.offered.Load(), time.Since(l.began)
	return offered != notOffered && (now-time.Duration(l.taken.Load()) >= idle || now-time.Duration(offered) >= chunk)
}

// end ends the lease. It may be called more than once.
func (l *snapshotLease) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.tx != nil {
		l.release()
	}
}

// release ends the transaction. The caller holds the mutex.
func (l *snapshotLease) release() {
	l.timer.Stop()
	l.tx.Rollback()
	l.tx = nil
	l.store.leasesMutex.Lock()
	delete(l.store.leases, l)
	l.store.leasesMutex.Unlock()
}

// run runs statements. It returns errLeaseLost if the lease has ended.
func (l *snapshotLease) run(ctx context.Context, statements ...Statement) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.tx == nil {
		return errLeaseLost
	}
	if len(statements) == 0 {
		return nil
	}
	if hook, ok := ctx.Value(hookKey{}).(func(Tx, Statement) error); ok {
		for _, s := range statements {
			s.SQL = s.Render(&l.store.dialect)
			if err := hook(l.tx, s); err != nil {
				return err
			}
		}
	}
	return l.tx.Run(ctx, statements...)
}

// offer records that rows are offered from now on.
func (l *snapshotLease) offer() {
	now := int64(time.Since(l.began))
	l.taken.Store(now)
	l.offered.Store(now)
}

// rowTaken records that a row was read.
func (l *snapshotLease) rowTaken() { l.taken.Store(int64(time.Since(l.began))) }

// clearOffer records that all rows were read, and the client waits for more.
func (l *snapshotLease) clearOffer() { l.offered.Store(notOffered) }

// errLeaseLost is the error of a list whose lease was ended.
var errLeaseLost = tko.Errorf(tko.ErrBusy, "the list was not read in time")

// errListEnded returns the error for the client of a list whose lease was ended. The
// list can be continued after the ID after.
func errListEnded(after string) error {
	return tko.Errorf(tko.ErrBusy, "the server closed the list because its rows were not read in time: "+
		"read faster, or continue after %q (the cursor of the window), which lists the records as they are then", after)
}

type hookKey struct{}

// WithStatementHook returns a context in which hook is called before every
// statement of a list, with the SQL that the database receives, in the list's
// transaction. Tests use it to inspect query plans.
func WithStatementHook(ctx context.Context, hook func(tx Tx, s Statement) error) context.Context {
	return context.WithValue(ctx, hookKey{}, hook)
}
