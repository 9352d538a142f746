package relational

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/selection"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A Store is a [record.Store] on a relational database.
type Store struct {
	db      Database // observed
	base    Database // the same, not observed
	dialect sqldb.Dialect
	backend string

	calls chan *call
	quit  context.CancelFunc
	ended context.Context //nolint:containedctx // the life of the store, not of a request
	wait  sync.WaitGroup
	close func() error
	gaps  func(position int64) int64 // nil for none

	observer atomic.Pointer[Observer]
	disk     diskState

	sealer      Sealer // nil if packages are not encrypted
	blobs       *lru.Cache[record.Digest, []byte]
	metasets    *lru.Cache[int64, *record.Metadata]
	commitCache commitCache

	reads readGroup

	tallyCounter tallyCounter

	stepSizers map[tko.Kind]*stepSizer // of deletions of records on which others depend, by their kind
	clock      clock

	offsetCache offsetCache
	leasesMutex sync.Mutex
	leases      map[*snapshotLease]bool // of the lists that are being read
	waiting     int                     // number of lists that wait for a lease

	mutex  sync.Mutex
	stored *storedContent
	signal chan struct{}

	workSignals map[string]chan struct{} // by queue
	wakeSoon    map[string]bool          // queues whose workers are about to be woken
}

// Limits of the caches: entries, or bytes where noted.
const (
	cachedPackages = 64 << 20
	cachedMetasets = 32 << 20
	cachedNumbers  = 100_000
	cachedPairs    = 200_000
)

// New returns a store on a database whose schema is current. The store owns the
// database and closes it.
func New(ctx context.Context, db Database, backend string) *Store {
	s := newStore(ctx, db, backend)
	s.wait.Go(s.watchClock)
	return s
}

// LeaveGaps has a new store leave out positions before each change: as many as leave returns for
// the next one. Readers must not depend on the number of positions; tests use it to show that.
func (s *Store) LeaveGaps(leave func(position int64) int64) { s.gaps = leave }

// Gaps are for LeaveGaps: none, a few, or many positions.
func Gaps(position int64) int64 { return []int64{0, 3, 1, 300, 0, 9}[position%6] }

// newStore returns a store that doesn't watch the database's clock.
func newStore(ctx context.Context, db Database, backend string) *Store {
	s := &Store{
		base:        db,
		dialect:     db.Dialect(),
		backend:     backend,
		calls:       make(chan *call),
		blobs:       lru.New[record.Digest, []byte](cachedPackages),
		metasets:    lru.New[int64, *record.Metadata](cachedMetasets),
		commitCache: commitCache{positions: lru.New[record.Key, int64](cachedPositions)},
		leases:      map[*snapshotLease]bool{},
		signal:      make(chan struct{}),
		workSignals: map[string]chan struct{}{},
		wakeSoon:    map[string]bool{},
		stored:      newStoredContent(0),
		clock:       newClock(),
		stepSizers:  map[tko.Kind]*stepSizer{tko.KindTemplate: {}, tko.KindSite: {}, tko.KindDeployment: {}},
	}
	s.db = observed{db, s}
	s.ended, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	s.close = sync.OnceValue(func() error {
		s.quit()
		s.closeReads()
		s.wait.Wait()
		return s.db.Close()
	})
	s.wait.Go(s.commitCalls)
	return s
}

// A storedContent lists metadata, packages and metadata index entries that the
// database is known to have, so that commits don't write them again. It is valid
// until the next collection: a commit uses it only with the generation that it
// read with the head locked. Content that was read without that lock may have
// been collected, and must not be added.
type storedContent struct {
	generation int64                            // head.collected
	metasets   *lru.Cache[record.Digest, int64] // of metasets, by digest
	packages   *lru.Cache[record.Digest, struct{}]
	pairs      *lru.Cache[selection.PairKey, int64]
}

func newStoredContent(generation int64) *storedContent {
	return &storedContent{
		generation,
		lru.New[record.Digest, int64](cachedNumbers),
		lru.New[record.Digest, struct{}](cachedNumbers),
		lru.New[selection.PairKey, int64](cachedPairs),
	}
}

// storedAt returns the stored content known at a generation.
func (s *Store) storedAt(generation int64) *storedContent {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if generation > s.stored.generation {
		s.stored = newStoredContent(generation)
	}
	if generation < s.stored.generation { // a newer transaction was faster: the calling transaction will fail, or has ended
		return newStoredContent(generation)
	}
	return s.stored
}

// Backend names the kind of database and its version.
func (s *Store) Backend() string { return s.backend }

// Close closes the store and its database. Calls under way fail.
func (s *Store) Close() error { return s.close() }

var errClosed = errors.New("the store is closed")

// write runs a transaction that writes. fn reads, and returns the statements that
// end the transaction. fn may run more than once, even after its transaction was
// committed, if the connection was lost before the database confirmed it: fn must
// then detect that and return no statements. By then fn holds the locks that the
// lost transaction held, so that transaction has ended.
func (s *Store) write(ctx context.Context, fn func(tx Tx) ([]Statement, error)) error {
	lost := false
	return s.retry(ctx, func() error {
		decided, err := s.tryWrite(ctx, fn)
		if decided {
			lost = outcomeUnknown(err)
		} else if lost { // the outcome is still unknown, whatever the reason
			return &UnknownOutcomeError{Err: err}
		}
		return err
	})
}

// tryWrite runs a transaction once. decided is true if fn ended and none of its
// statements failed: then the outcome of an earlier try is known, too.
func (s *Store) tryWrite(ctx context.Context, fn func(tx Tx) ([]Statement, error)) (decided bool, err error) {
	tx, err := s.db.Begin(ctx, Write)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	recording := &failureTx{Tx: tx}
	last, err := fn(recording)
	if err != nil {
		return !recording.failed, err
	}
	return true, tx.Commit(ctx, last...)
}

// A failureTx records whether a statement failed.
type failureTx struct {
	Tx

	failed bool
}

func (t *failureTx) Run(ctx context.Context, statements ...Statement) error {
	err := t.Tx.Run(ctx, statements...)
	t.failed = t.failed || err != nil
	return err
}

// run runs statements that read, each in its own snapshot.
func (s *Store) run(ctx context.Context, statements ...Statement) error {
	for _, statement := range statements {
		if err := s.retry(ctx, func() error { return s.db.Run(ctx, statement) }); err != nil {
			return err
		}
	}
	return nil
}

func fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
