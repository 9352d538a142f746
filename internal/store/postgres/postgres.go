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

	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// Options configure a store.
type Options struct {
	// Connections is the maximum number of connections. If zero, it is
	// pool_max_conns of the DSN, or else 16.
	Connections int
	// Wait is the time limit of waiting for a database that can't be reached; a
	// minute if zero.
	Wait time.Duration
	// Replicas are the DSNs of hot standbys for reads. A standby is used only for
	// reads that it has reached the position of; others use the primary.
	Replicas []string
	Log      *slog.Logger // discarded if nil
}

const (
	defaultConnections = 16
	// minConnections leaves one connection for short calls while another serves a
	// list.
	minConnections = 2
	// reserved is the number of connections that lists leave to other calls, if
	// there are twice as many.
	reserved    = 4
	defaultWait = time.Minute
)

// Open opens the store in the database that a DSN names (a URL or key=value pairs,
// see libpq). It migrates an empty database or an older schema, and returns an error
// for a newer one. Errors never contain the DSN's password.
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
	where := whereOf(config.ConnConfig)
	var s *relational.Store
	err = waitForDatabase(ctx, where, options, func() error {
		if err := migrate(ctx, config.ConnConfig, where); err != nil {
			return err
		}
		s, err = open(ctx, config, options)
		if err != nil {
			return fmt.Errorf("open PostgreSQL at %s: %w", where, err)
		}
		return nil
	})
	return s, err
}

// whereOf returns the place of a database, without credentials.
func whereOf(c *pgx.ConnConfig) string { return fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database) }

// waitForDatabase calls try until the database is available, for up to o.Wait.
func waitForDatabase(ctx context.Context, where string, o Options, try func() error) error {
	limit := time.Now().Add(o.Wait)
	logged := false
	for {
		err := try()
		if !transient(err) {
			if err == nil && logged {
				o.Log.InfoContext(ctx, "the database is available", slog.String("database", where))
			}
			return err
		}
		const wait = 200 * time.Millisecond
		if time.Until(limit) < wait || ctx.Err() != nil {
			return fmt.Errorf("the database was not available within %v: %w", o.Wait, err)
		}
		if !logged {
			logged = true
			o.Log.WarnContext(ctx, "waiting for the database", slog.String("database", where), slog.Duration("at_most", o.Wait), slog.Any("err", err))
		}
		_ = pause.For(ctx, wait)
	}
}

// configure parses a DSN and sets the defaults.
func configure(dsn string, connections int) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the PostgreSQL DSN can't be read: " + dsnHint)
	}
	own, err := pgx.ParseConfig(dsn) // also has the parameters of the pool
	if err != nil {
		return nil, errors.New("the PostgreSQL DSN can't be read: " + dsnHint)
	}
	params := own.RuntimeParams
	switch {
	case connections > 0:
		config.MaxConns = int32(min(connections, 10_000))
	case params["pool_max_conns"] == "":
		config.MaxConns = defaultConnections
	}
	config.MaxConns = max(config.MaxConns, minConnections)
	if params["pool_max_conn_idle_time"] == "" {
		config.MaxConnIdleTime = 5 * time.Minute
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	if params["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "tko"
	}
	config.ConnConfig.DialFunc = dialer().DialContext
	config.AfterConnect = applySettings(params)
	return config, nil
}

// open opens the pool of a database with the current schema, and listens for commits.
func open(ctx context.Context, config *pgxpool.Config, options Options) (*relational.Store, error) {
	log := options.Log
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	lists := max(config.MaxConns-reserved, config.MaxConns/2)
	db := &database{pool: pool, closing: make(chan struct{}), grown: make(chan struct{}, 1), readers: make(chan struct{}, lists)}
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
	if err := db.openStandbys(ctx, options.Replicas, options.Connections, log); err != nil {
		for _, s := range db.standbys {
			s.pool.Close()
		}
		pool.Close()
		return nil, err
	}
	if !db.skipLocked {
		log.InfoContext(ctx, "the database has no SKIP LOCKED: workers that claim work wait for each other")
	}
	s := relational.New(ctx, db, backend(version))
	db.listen(context.WithoutCancel(ctx), config.ConnConfig, s.Wake, log)
	return s, nil
}

// backend returns the name and version in the result of version().
func backend(version string) string {
	words := strings.Fields(version)
	return strings.TrimSuffix(strings.Join(words[:min(2, len(words))], " "), ",")
}

// dsnHint is the only text in errors about a DSN: the driver's text may contain parts
// of the password.
const dsnHint = "check its form, port and options: postgresql://USER@HOST:PORT/DATABASE, or host=HOST port=PORT user=USER dbname=DATABASE"

// A setting is a setting of a connection.
type setting struct{ name, value string }

// settings limit statements that might take forever, and make every statement use
// the indexes it was written for, whatever the statistics of a table that has just
// grown are. Statements are planned once: for short arrays they would be planned every
// time, which takes longer than running them. The DSN overrides these settings.
// Settings that the database doesn't know are skipped.
var settings = []setting{
	{"statement_timeout", "'5min'"},
	{"lock_timeout", "'1min'"},
	// A transaction whose client vanished holds its locks for that long.
	{"idle_in_transaction_session_timeout", "'30s'"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_sort", "off"}, // an incremental one remains
	{"jit", "off"},
	{"plan_cache_mode", "force_generic_plan"},
}

// applySettings returns a function that applies the settings that the DSN doesn't
// contain to a new connection.
func applySettings(params map[string]string) func(context.Context, *pgx.Conn) error {
	var statements []string
	for _, s := range settings {
		if params[s.name] == "" && !strings.Contains(params["options"], s.name) {
			statements = append(statements, "SET "+s.name+" = "+s.value)
		}
	}
	return func(ctx context.Context, conn *pgx.Conn) error {
		// All in one round trip, unless the database doesn't know one of them.
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
