package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is PostgreSQL without TKO. It runs similar work just before TKO does, so that
// both measure the machine in the same state.
type Raw struct {
	pool    *pgxpool.Pool
	options Options
	inserts []float64
	streams []float64
}

const (
	createRaw = `CREATE TABLE tko_bench_raw (id text PRIMARY KEY, site text, template text, metadata jsonb, body text)`
	dropRaw   = `DROP TABLE IF EXISTS tko_bench_raw`
	insertRaw = `INSERT INTO tko_bench_raw VALUES ($1, $2, $3, $4, $5)`
	manyRaw   = `INSERT INTO tko_bench_raw SELECT 'many-' || i, 'site', 'template', $1, $2 FROM generate_series(1, $3::int) i`
	streamRaw = `SELECT id, site, template, metadata::text, body FROM tko_bench_raw ORDER BY id`
)

// The content of raw rows: about the size of a deployment's.
const rawMetadata = `{"channel":"stable","NetworkFunction.name":"upf","NetworkFunction.variant.version":"v1"}`

var rawBody = strings.Repeat("x", 100)

// OpenRaw creates a table in a database, with as many rows as there are deployments.
// Close drops it.
func OpenRaw(ctx context.Context, dsn string, o Options) (*Raw, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(min(o.Clients, 1000)) //nolint:gosec // it is in bounds
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	r := &Raw{pool: pool, options: o}
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{dropRaw, nil},
		{createRaw, nil},
		{manyRaw, []any{rawMetadata, rawBody, o.Deployments}},
		{`VACUUM ANALYZE tko_bench_raw`, nil},
	} {
		if _, err := pool.Exec(ctx, statement.sql, statement.args...); err != nil {
			pool.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close drops the table.
func (r *Raw) Close(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, dropRaw)
	r.pool.Close()
	return err
}

// insert returns the rate of transactions with a single INSERT, with as many clients; 0
// without PostgreSQL.
func (r *Raw) insert(ctx context.Context) (float64, error) {
	if r == nil {
		return 0, nil
	}
	series := len(r.inserts)
	rate, err := parallel(ctx, r.options.Clients, r.options.Register, func(ctx context.Context, i int) error {
		_, err := r.pool.Exec(ctx, insertRaw, fmt.Sprintf("one-%d-%09d", series, i), "site", "template", rawMetadata, rawBody)
		return err
	})
	r.inserts = append(r.inserts, rate)
	return rate, err
}

// stream returns the rate of rows of a SELECT of all rows; 0 without PostgreSQL.
func (r *Raw) stream(ctx context.Context) (float64, error) {
	if r == nil {
		return 0, nil
	}
	began, n := time.Now(), 0
	rows, err := r.pool.Query(ctx, streamRaw)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var id, site, template, meta, text string
	for rows.Next() {
		if err := rows.Scan(&id, &site, &template, &meta, &text); err != nil {
			return 0, err
		}
		n++
	}
	rate := float64(n) / time.Since(began).Seconds()
	r.streams = append(r.streams, rate)
	return rate, rows.Err()
}

// RawRates are the rates of raw PostgreSQL, in the order of measurement.
type RawRates struct {
	Inserts []float64 `json:"inserts"` // single-row INSERT transactions per second
	Streams []float64 `json:"streams"` // rows per second of a SELECT of all rows
}

// Rates returns the rates measured so far; none without PostgreSQL.
func (r *Raw) Rates() RawRates {
	if r == nil {
		return RawRates{}
	}
	return RawRates{Inserts: r.inserts, Streams: r.streams}
}

func (r RawRates) String() string {
	if len(r.Inserts) == 0 && len(r.Streams) == 0 {
		return "No raw PostgreSQL in this run."
	}
	span := func(rates []float64) string {
		if len(rates) == 0 {
			return "an unknown number"
		}
		least, most := slices.Min(rates), slices.Max(rates)
		if least == most {
			return fmt.Sprintf("%.0f", most)
		}
		return fmt.Sprintf("%.0f to %.0f", least, most)
	}
	return fmt.Sprintf("Raw PostgreSQL in the same run, measured just before each comparison: %s single-row INSERT transactions/s, %s rows/s of SELECT.",
		span(r.Inserts), span(r.Streams))
}

// A database is the server's database, for statistics.
type database struct{ conn *pgx.Conn }

// size returns the size of the database on disk, in bytes.
func (d database) size(ctx context.Context) (bytes int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&bytes)
	return bytes, err
}

// transactions returns the number of transactions so far, without this one.
func (d database) transactions(ctx context.Context) (n int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}
