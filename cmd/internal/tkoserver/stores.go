package tkoserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/seal"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// What only some stores can do. [relational.Store] can do all of it.
type (
	// A completer may have an incomplete restore.
	completer interface {
		CheckComplete(ctx context.Context) error
	}
	// An archiver can be backed up and restored.
	archiver interface {
		Archive(ctx context.Context, w io.Writer, program string) (archive.Summary, error)
		Restore(ctx context.Context, r io.Reader, o relational.Restore) (archive.Summary, error)
	}
	// A promoter can be made the store that agents obey.
	promoter interface {
		Promote(ctx context.Context, p relational.Promotion) (tko.Fence, error)
	}
	// An encrypter encrypts packages.
	encrypter interface {
		seal.KeyStore
		Encrypt(sealer relational.Sealer)
		Reseal(ctx context.Context, progress func(done int)) error
	}
	// A versioned store can be used by programs of several versions.
	versioned interface {
		Schema(ctx context.Context) (relational.Schema, error)
		AllowOlder(ctx context.Context, version int64, ignoreRights bool) error
	}
	// A measured store reports on itself and its database.
	measured interface {
		Observe(o relational.Observer)
		DiskFull(ctx context.Context) (full bool, since time.Time)
		Size(ctx context.Context) (int64, error)
		Connections() (used, idle, limit int)
	}
	// A summarised store has the statistics of [statisticsOf] in fewer calls.
	summarised interface {
		Statistics(ctx context.Context, queues ...string) (relational.Statistics, error)
		SiteConditions(ctx context.Context, found func([]tko.Condition)) error
	}
)

// able returns a store as one that can do something; what it is completes "the store can't".
func able[T any](store record.Store, what string) (T, error) {
	able, ok := store.(T)
	if !ok {
		return able, tko.Errorf(tko.ErrInvalid, "the store (%s) can't %s: use one on SQLite or PostgreSQL for that", store.Backend(), what)
	}
	return able, nil
}

// openStore opens the store of --store. A store with an incomplete restore is an error.
func (p Program) openStore(ctx context.Context, c *config.Config, log *slog.Logger) (record.Store, error) {
	store, err := p.openStoreAs(ctx, c, log, true)
	if err != nil {
		return nil, err
	}
	if s, ok := store.(completer); ok {
		if err := s.CheckComplete(ctx); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	return store, nil
}

// openStoreAs opens a store. If exclusive is false, a server may use the same SQLite file.
func (p Program) openStoreAs(ctx context.Context, c *config.Config, log *slog.Logger, exclusive bool) (record.Store, error) {
	where := string(c.Store)
	if path, ok := strings.CutPrefix(where, "sqlite:"); ok {
		if path == ":memory:" {
			return opened(sqlite.OpenMemory(ctx))
		}
		return opened(sqlite.Open(ctx, path, sqlite.Options{Log: log, Exclusive: exclusive, Readable: c.StoreReadable}))
	}
	if s := p.stores(where); s != nil {
		return s.Open(ctx, where, OpenOptions{Wait: c.StoreWait, Log: log})
	}
	if isPostgres(where) {
		options := postgres.Options{Wait: c.StoreWait, Log: log}
		for _, dsn := range c.Replicas {
			options.Replicas = append(options.Replicas, string(dsn))
		}
		return opened(postgres.Open(ctx, where, options))
	}
	return nil, unknownStore(where)
}

// opened makes an interface of a store, which is nil after an error.
func opened(store *relational.Store, err error) (record.Store, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// checkStoreOf returns why a store can't be opened, and whether that would change its schema. It changes nothing.
func (p Program) checkStoreOf(ctx context.Context, where string) (migrates bool, err error) {
	switch path, isFile := strings.CutPrefix(where, "sqlite:"); {
	case path == ":memory:":
		return false, nil
	case isFile:
		return sqlite.Check(ctx, path)
	case p.stores(where) != nil:
		return p.stores(where).Check(ctx, where)
	case isPostgres(where):
		return postgres.Check(ctx, where)
	default:
		return false, unknownStore(where)
	}
}

// errStore is that of a setting that no program knows.
var errStore = tko.Errorf(tko.ErrInvalid, "--store is not a known kind of store: use sqlite:PATH, sqlite::memory: or a PostgreSQL DSN (postgres://user@host/database), or spanner:projects/P/instances/I/databases/D with tko-server-spanner")

// errSpanner is that of a program without Spanner's client.
var errSpanner = tko.Errorf(tko.ErrInvalid, "--store names a database on Spanner, whose client is not in this program: start tko-server-spanner instead, with the same settings")

func unknownStore(where string) error {
	if strings.HasPrefix(where, "spanner:") {
		return errSpanner
	}
	return errStore
}

func isPostgres(store string) bool {
	return strings.HasPrefix(store, "postgres://") || strings.HasPrefix(store, "postgresql://") || !strings.HasPrefix(store, "spanner:") && strings.Contains(store, "=")
}

// statisticsOf returns statistics of a store. The numbers of sinks are those of the named ones that it knows.
func statisticsOf(ctx context.Context, store record.Store, sinks, queues []string) (relational.Statistics, error) {
	if s, ok := store.(summarised); ok {
		return s.Statistics(ctx, queues...)
	}
	st := relational.Statistics{Behind: map[string]int64{}}
	var err error
	if st.Head, err = store.Head(ctx); err != nil {
		return st, err
	}
	_, head, _, err := store.Audited(ctx, 1<<62, 1)
	if err != nil {
		return st, err
	}
	st.Audited = head.Seq
	for _, sink := range sinks {
		seq, err := store.AuditSink(ctx, sink)
		if err != nil {
			return st, err
		}
		st.Behind[sink] = max(0, st.Audited-seq)
	}
	for _, queue := range queues {
		q, err := store.QueueStatistics(ctx, queue)
		if err != nil {
			return st, err
		}
		st.Queues = append(st.Queues, q)
	}
	return st, nil
}

// maxSites limits the sites whose conditions are counted.
const maxSites = 100_000

// siteConditions calls found with the conditions of each site, for up to 100,000.
func siteConditions(ctx context.Context, store record.Store, found func([]tko.Condition)) error {
	if s, ok := store.(summarised); ok {
		return s.SiteConditions(ctx, found)
	}
	left := maxSites
	for r, err := range store.List(ctx, record.Query{Kind: tko.KindSite}) {
		if err != nil {
			return err
		}
		found(r.Conditions)
		left--
		if left == 0 {
			break
		}
	}
	return nil
}
