package spanner

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"regexp"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// A Store is a [record.Store] on a Spanner database. Several, also in other processes, may share
// the database.
type Store struct {
	client   *spanner.Client
	sealer   form.Sealer                       // nil if packages are not encrypted
	blobs    *lru.Cache[record.Digest, []byte] // content that the database has
	newest   atomic.Int64                      // greatest position that this store has seen: where searches from the end begin
	lanes    chan struct{}                     // of commits
	random   func(n int64) int64               // of the first slot
	quit     context.CancelFunc
	wait     sync.WaitGroup
	shutdown func()

	mutex  sync.Mutex
	signal chan struct{}            // closed by the next wake
	work   map[string]chan struct{} // by queue: closed by the next wake of the queue
	asked  bool                     // a caller may be waiting for a signal
}

var _ record.Store = (*Store)(nil)

// cachedContent is the maximum size of the cache of content, in bytes.
const cachedContent = 64 << 20

// The number of commits of one store that may run at once. The emulator runs one transaction at a time
// and aborts the others, which then wait longer and longer: they would starve.
const (
	commitLanes         = 64
	emulatorCommitLanes = 1
)

// prefix begins the setting of a store on Spanner.
const prefix = "spanner:"

var databaseName = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/databases/[^/]+$`)

// Open opens the store of a setting, such as spanner:projects/P/instances/I/databases/D, and
// creates the schema of an empty database. Credentials are the application default ones; the
// emulator's address is in SPANNER_EMULATOR_HOST.
func Open(ctx context.Context, setting string, options ...option.ClientOption) (*Store, error) {
	database, err := nameOf(setting)
	if err != nil {
		return nil, err
	}
	options = append([]option.ClientOption{option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(noteCommits))}, options...)
	pool := spanner.DefaultSessionPoolConfig
	pool.MinOpened = 4
	client, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{SessionPoolConfig: pool, DisableNativeMetrics: true, Logger: log.New(io.Discard, "", 0)}, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", database, err)
	}
	if err := prepareSchema(ctx, client, database, options...); err != nil {
		client.Close()
		return nil, err
	}
	lanes := commitLanes
	if os.Getenv(emulatorVariable) != "" {
		lanes = emulatorCommitLanes
	}
	s := &Store{
		client: client, blobs: lru.New[record.Digest, []byte](cachedContent), lanes: make(chan struct{}, lanes), random: rand.Int64N, signal: make(chan struct{}), work: map[string]chan struct{}{},
	}
	ended, quit := context.WithCancel(context.WithoutCancel(ctx))
	s.quit = quit
	s.wait.Go(func() { s.tail(ended) })
	s.wait.Go(func() { s.follow(ended) })
	s.shutdown = sync.OnceFunc(func() {
		s.quit()
		s.wait.Wait()
		s.client.Close()
	})
	return s, nil
}

// Backend returns the kind of database.
func (s *Store) Backend() string { return "Spanner" }

// Close closes the store.
func (s *Store) Close() error {
	s.shutdown()
	return nil
}

// seen remembers that a position exists.
func (s *Store) seen(position int64) {
	for {
		old := s.newest.Load()
		if position <= old || s.newest.CompareAndSwap(old, position) {
			return
		}
	}
}

// fault describes an error of the database. The end of the caller's context is that error again,
// which Spanner's client hides in a status.
func fault(doing string, err error) error {
	switch spanner.ErrCode(err) {
	case codes.OK:
		if err == nil {
			return nil
		}
	case codes.Canceled:
		return fmt.Errorf("%s: %w: %w", doing, context.Canceled, err)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w: %w", doing, context.DeadlineExceeded, err)
	case codes.Unavailable:
		return fmt.Errorf("%s: %w: %w", doing, tko.ErrUnavailable, err)
	default:
	}
	return fmt.Errorf("%s: %w", doing, err)
}
