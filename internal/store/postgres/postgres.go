package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// Options are what may be said when a store is opened.
type Options struct {
	// Connections is how many are made at most; what pool_max_conns in the DSN
	// says, or else 16, if zero.
	Connections int
	// Wait is how long to wait for a database that can't be reached; a minute
	// if zero.
	Wait time.Duration
	Log  *slog.Logger // where to report; nowhere if nil
}

const (
	defaultConnections = 16
	// minConnections leave one for those who are done quickly when another
	// serves a list.
	minConnections = 2
	// reserved is how many connections lists leave to others, if there are as many.
	reserved    = 4
	defaultWait = time.Minute
)

// Open opens the store in the database that a DSN names (a URL or key=value
// pairs, see libpq). An empty database or an older schema is migrated, a newer
// schema refused. Errors don't tell the DSN's password.
func Open(ctx context.Context, dsn string, options Options) (*relational.Store, error) {
	config, err := configure(dsn, options.Connections)
	if err != nil {
		return nil, err
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Wait == 0 {
		options.Wait = defaultWait
	}
	where := fmt.Sprintf("%s:%d/%s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database)
	var s *relational.Store
	err = patiently(ctx, where, options, func() error {
		if err := migrate(ctx, config.ConnConfig, where); err != nil {
			return err
		}
		s, err = open(ctx, config, options.Log)
		if err != nil {
			return fmt.Errorf("open PostgreSQL at %s: %w", where, err)
		}
		return nil
	})
	return s, err
}

// patiently waits for a database that isn't there yet.
func patiently(ctx context.Context, where string, o Options, try func() error) error {
	limit := time.Now().Add(o.Wait)
	told := false
	for {
		err := try()
		if !transient(err) {
			if err == nil && told {
				o.Log.InfoContext(ctx, "the database is there", slog.String("database", where))
			}
			return err
		}
		const pause = 200 * time.Millisecond
		if time.Until(limit) < pause || ctx.Err() != nil {
			return fmt.Errorf("the database was not there within %v: %w", o.Wait, err)
		}
		if !told {
			told = true
			o.Log.WarnContext(ctx, "waiting for the database", slog.String("database", where), slog.Duration("at_most", o.Wait), slog.Any("err", err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// configure reads a DSN, and settles what it leaves open.
func configure(dsn string, connections int) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the PostgreSQL DSN can't be read: " + form)
	}
	own, err := pgx.ParseConfig(dsn) // keeps what is about the pool
	if err != nil {
		return nil, errors.New("the PostgreSQL DSN can't be read: " + form)
	}
	said := own.RuntimeParams
	switch {
	case connections > 0:
		config.MaxConns = int32(min(connections, 10_000))
	case said["pool_max_conns"] == "":
		config.MaxConns = defaultConnections
	}
	config.MaxConns = max(config.MaxConns, minConnections)
	if said["pool_max_conn_idle_time"] == "" {
		config.MaxConnIdleTime = 5 * time.Minute
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if said["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "tko"
	}
	config.ConnConfig.DialFunc = dialer().DialContext
	config.AfterConnect = settle(said)
	return config, nil
}

// open opens the pool of a database with the current schema, and what listens
// to it.
func open(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (*relational.Store, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	lists := max(config.MaxConns-reserved, config.MaxConns/2)
	db := &database{pool: pool, life: make(chan struct{}), readers: make(chan struct{}, lists)}
	var version string
	err = pool.QueryRow(ctx, "SELECT version()").Scan(&version)
	if err == nil {
		err = db.probe(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	db.dialect = db.makeDialect()
	if !db.skipLocked {
		log.InfoContext(ctx, "the database has no SKIP LOCKED, so those who claim work wait for each other")
	}
	s := relational.New(ctx, db, backend(version))
	db.listen(context.WithoutCancel(ctx), config.ConnConfig, s.Wake, log)
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

// A setting is one of a connection.
type setting struct{ name, value string }

// settings bound what may take forever, and make every statement use the
// indexes it was written for, whatever the statistics of a table that has just
// grown say, and plan it once: for arrays of few elements it would be planned
// every time, which takes longer than running it. The DSN overrules them. A database that doesn't know one of them
// is left as it is.
var settings = []setting{
	{"statement_timeout", "'5min'"},
	{"lock_timeout", "'1min'"},
	// A transaction whose client went away unheard holds its locks that long.
	{"idle_in_transaction_session_timeout", "'30s'"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
	{"enable_bitmapscan", "off"},
	{"jit", "off"},
	{"plan_cache_mode", "force_generic_plan"},
}

// settle makes the settings of a new connection that the DSN doesn't make.
func settle(said map[string]string) func(context.Context, *pgx.Conn) error {
	var statements []string
	for _, s := range settings {
		if said[s.name] == "" && !strings.Contains(said["options"], s.name) {
			statements = append(statements, "SET "+s.name+" = "+s.value)
		}
	}
	return func(ctx context.Context, conn *pgx.Conn) error {
		// All in one round trip, unless one of them isn't known.
		_, err := conn.PgConn().Exec(ctx, strings.Join(statements, "; ")).ReadAll()
		if !refused(err) {
			return err
		}
		for _, statement := range statements {
			if _, err := conn.PgConn().Exec(ctx, statement).ReadAll(); err != nil && !refused(err) {
				return err
			}
		}
		return nil
	}
}
