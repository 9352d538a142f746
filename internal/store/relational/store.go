package relational

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A Store is a [catalog.Store] on a relational database.
type Store struct {
	db      Database
	dialect Dialect
	backend string

	calls chan *call
	quit  context.CancelFunc
	ended context.Context //nolint:containedctx // is the store's life, not a request's
	wait  sync.WaitGroup
	close func() error

	blobs    *cache[catalog.Digest, []byte]
	metasets *cache[int64, *catalog.Metadata]
	memory   memory

	pace  pace // of steps
	clock clock

	offsets    offsets
	turnsMutex sync.Mutex
	turns      map[*turn]bool // the lists that go on
	waiting    int            // how many wait for their turn

	mutex  sync.Mutex
	known  *known
	signal chan struct{}
}

// The sizes of caches: entries, or bytes for packages.
const (
	cachedPackages = 64 << 20
	cachedMetasets = 32 << 20
	cachedNumbers  = 100_000
	cachedPairs    = 200_000
)

// New makes a store of a database whose schema is current. The store owns the
// database from then on.
func New(ctx context.Context, db Database, backend string) *Store {
	s := &Store{
		db:       db,
		dialect:  db.Dialect(),
		backend:  backend,
		calls:    make(chan *call),
		blobs:    newCache[catalog.Digest, []byte](cachedPackages),
		metasets: newCache[int64, *catalog.Metadata](cachedMetasets),
		memory:   memory{present: newCache[catalog.Key, int64](cachedPositions)},
		turns:    map[*turn]bool{},
		signal:   make(chan struct{}),
		known:    newKnown(0),
		clock:    newClock(),
	}
	s.ended, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	s.close = sync.OnceValue(func() error {
		s.quit()
		s.wait.Wait()
		return s.db.Close()
	})
	s.wait.Go(s.commitCalls)
	s.wait.Go(s.watchClock)
	return s
}

// known is what commits know to be in the database, and don't write again. It
// holds as long as nothing is collected: a commit uses it only with the
// generation that it read with the head locked. What was read without that
// lock may be gone, and doesn't belong here.
type known struct {
	generation int64                         // head.collected
	numbers    *cache[catalog.Digest, int64] // of metasets, by digest
	packages   *cache[catalog.Digest, struct{}]
	pairs      *cache[pairKey, int64]
}

func newKnown(generation int64) *known {
	return &known{
		generation,
		newCache[catalog.Digest, int64](cachedNumbers),
		newCache[catalog.Digest, struct{}](cachedNumbers),
		newCache[pairKey, int64](cachedPairs),
	}
}

// knownSince answers what is known at a generation.
func (s *Store) knownSince(generation int64) *known {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if generation > s.known.generation {
		s.known = newKnown(generation)
	}
	if generation < s.known.generation { // somebody was faster: this one is for a transaction that will fail, or has ended
		return newKnown(generation)
	}
	return s.known
}

// Backend names the kind of database and its version.
func (s *Store) Backend() string { return s.backend }

// Close ends everything.
func (s *Store) Close() error { return s.close() }

// Signal answers a channel that is closed at the next change.
func (s *Store) Signal() <-chan struct{} {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.signal
}

// Wake closes the channel that [Store.Signal] answered: databases call it when
// they hear of a commit of another store.
func (s *Store) Wake() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	close(s.signal)
	s.signal = make(chan struct{})
}

var errClosed = errors.New("the store is closed")

// write runs a transaction that writes: the statements that fn answers are its
// end. fn may run more than once, even after its transaction has happened, if
// the connection was lost before the database could say so: then it must find
// that out and do nothing again. It holds locks by then that the lost
// transaction had, so that is over.
func (s *Store) write(ctx context.Context, fn func(tx Tx) ([]Statement, error)) error {
	lost := false
	return s.retry(ctx, func() error {
		decided, err := s.tryWrite(ctx, fn)
		if decided {
			unknown := (*UnknownOutcomeError)(nil)
			lost = errors.As(err, &unknown)
		} else if lost { // and not found out, whatever the reason
			return &UnknownOutcomeError{Err: err}
		}
		return err
	})
}

// tryWrite runs a transaction once. It is decided if fn came to an end with
// what it read, so that nothing is open any more of an earlier try.
func (s *Store) tryWrite(ctx context.Context, fn func(tx Tx) ([]Statement, error)) (decided bool, err error) {
	tx, err := s.db.Begin(ctx, Write)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	noting := &notingTx{Tx: tx}
	last, err := fn(noting)
	if err != nil {
		return !noting.failed, err
	}
	return true, tx.Commit(ctx, last...)
}

// A notingTx notes whether a statement failed.
type notingTx struct {
	Tx

	failed bool
}

func (t *notingTx) Run(ctx context.Context, statements ...Statement) error {
	err := t.Tx.Run(ctx, statements...)
	t.failed = t.failed || err != nil
	return err
}

// run runs statements that read, each in a snapshot of its own.
func (s *Store) run(ctx context.Context, statements ...Statement) error {
	for _, statement := range statements {
		if err := s.retry(ctx, func() error { return s.db.Run(ctx, statement) }); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what the databases can't keep as text.
func checkText(what, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return tko.Errorf(tko.ErrInvalid, "%s %.60q has a NUL character, which can't be stored: leave it out", what, text)
	}
	if !utf8.ValidString(text) {
		return tko.Errorf(tko.ErrInvalid, "%s %.60q is not valid UTF-8: encode it so", what, text)
	}
	return nil
}

func checkTexts(pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if err := checkText(pair[0], pair[1]); err != nil {
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
