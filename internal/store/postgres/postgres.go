package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// Options are what may be said when a store is opened.
type Options struct {
	Connections int          // at most; 16 if zero
	Log         *slog.Logger // where to report; nowhere if nil
}

// reserved is how many connections lists leave to others.
const reserved = 4

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens the store in the database that a DSN names (a URL or key=value
// pairs, see libpq). An empty database or an older schema is migrated, a newer
// schema refused. Errors don't tell the DSN's password.
func Open(ctx context.Context, dsn string, options Options) (*relational.Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the PostgreSQL DSN can't be read: " + form)
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	config.MaxConns = 16
	if options.Connections > 0 {
		config.MaxConns = int32(min(options.Connections, 10_000))
	}
	config.MaxConns = max(config.MaxConns, 2*reserved)
	config.MaxConnIdleTime = 5 * time.Minute
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "tko"
	}
	config.AfterConnect = settle
	where := fmt.Sprintf("%s:%d/%s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database)
	if err := migrate(ctx, config.ConnConfig, where); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	db := &database{pool: pool, skipLocked: true, life: make(chan struct{}), readers: make(chan struct{}, config.MaxConns-reserved)}
	var version string
	if err := pool.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	db.probe(ctx)
	db.dialect = db.makeDialect()
	s := relational.New(ctx, db, backend(version))
	db.listen(context.WithoutCancel(ctx), config.ConnConfig, s.Wake, options.Log)
	return s, nil
}

// backend is the name and version out of what version() answers.
func backend(version string) string {
	words := strings.Fields(version)
	return strings.TrimSuffix(strings.Join(words[:min(2, len(words))], " "), ",")
}

// form is all that is said of a DSN that can't be read: what is wrong with it
// may be a part of its password.
const form = "check its form, port and options: postgresql://USER@HOST:PORT/DATABASE, or host=HOST port=PORT user=USER dbname=DATABASE"

// settings make every statement use the indexes it was written for, whatever
// the statistics of a table that has just grown say, and plan it once: for
// arrays of few elements it would be planned every time, which takes longer than
// running it. A database that doesn't know one of them is left as it is.
var settings = []string{
	"SET enable_seqscan = off",
	"SET enable_hashjoin = off",
	"SET enable_mergejoin = off",
	"SET enable_material = off",
	"SET enable_bitmapscan = off",
	"SET jit = off",
	"SET plan_cache_mode = force_generic_plan",
}

func settle(ctx context.Context, conn *pgx.Conn) error {
	for _, setting := range settings {
		if _, err := conn.Exec(ctx, setting); err != nil {
			if failure := (*pgconn.PgError)(nil); !errors.As(err, &failure) {
				return err
			}
		}
	}
	return nil
}

// migrate brings the schema to this version. Servers that start at the same
// time do it one after the other.
func migrate(ctx context.Context, config *pgx.ConnConfig, where string) error {
	db := stdlib.OpenDB(*config)
	defer db.Close() //nolint:errcheck // nothing of it is used any more
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 10))
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger())}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, append(options, goose.WithSessionLocker(locker))...)
	if err != nil {
		return fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	current, err := version(ctx, db)
	if err != nil {
		return fmt.Errorf("open PostgreSQL at %s: %w", where, err)
	}
	switch {
	case current > newest:
		return fmt.Errorf("the database at %s has the schema %d of a newer TKO, this one knows %d: use the newer TKO", where, current, newest)
	case current == newest:
		return nil
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database at %s: %w", where, err)
	}
	return nil
}

// version is that of the schema, 0 if there is none.
func version(ctx context.Context, db *sql.DB) (int64, error) {
	var current sql.NullInt64
	err := db.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&current)
	if failure := (*pgconn.PgError)(nil); errors.As(err, &failure) && failure.Code == codeUndefinedTable {
		return 0, nil
	}
	return current.Int64, err
}

// What PostgreSQL calls its errors.
const (
	codeUndefinedTable       = "42P01"
	classConnection          = "08"
	classRollback            = "40"  // serialization failures and deadlocks
	classOperator            = "57P" // it is shutting down or starting up
	codeTooManyConnections   = "53300"
	codeIdleTransactionEnded = "25P03"
)

// Transient errors are lost connections, and transactions that the database
// chose to end.
func (db *database) Transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(failure.Code, classConnection) || strings.HasPrefix(failure.Code, classRollback) ||
			strings.HasPrefix(failure.Code, classOperator) || failure.Code == codeTooManyConnections || failure.Code == codeIdleTransactionEnded
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed")
}
