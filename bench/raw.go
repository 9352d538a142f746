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
	groups  []float64
	streams []float64
}

const (
	createRaw  = `CREATE TABLE tko_bench_raw (id text PRIMARY KEY, site text, template text, metadata jsonb, body text)`
	createSix  = `CREATE TABLE tko_bench_metadata (id text, key text, value text, PRIMARY KEY (id, key))`
	createSet  = `CREATE TABLE tko_bench_rows (id text PRIMARY KEY, template text, site text, metadata jsonb, updated timestamptz)`
	dropRaw    = `DROP TABLE IF EXISTS tko_bench_raw, tko_bench_metadata, tko_bench_rows`
	insertRaw  = `INSERT INTO tko_bench_raw VALUES ($1, $2, $3, $4, $5)`
	manyRaw    = `INSERT INTO tko_bench_raw SELECT 'many-' || i, 'site', 'template', $1, $2 FROM generate_series(1, $3::int) i`
	insertFive = `INSERT INTO tko_bench_metadata SELECT $1, key, value FROM unnest($2::text[], $3::text[]) AS m (key, value)`
	fillSet    = `INSERT INTO tko_bench_rows SELECT $1 || lpad(i::text, 6, '0'), $2, $3, $4, now() FROM generate_series(1, $5::int) i`
	streamSet  = `SELECT id, template, site, metadata::text, updated FROM tko_bench_rows ORDER BY id`
	streamRaw  = `SELECT id, site, template, metadata::text, body FROM tko_bench_raw ORDER BY id`
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
		{createSix, nil},
		{createSet, nil},
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

// insertGroup returns the rate of transactions that insert one row, and one row for
// each of some metadata, with as many clients; 0 without PostgreSQL.
func (r *Raw) insertGroup(ctx context.Context, metadata map[string]string) (float64, error) {
	if r == nil {
		return 0, nil
	}
	var keys, values []string
	for key, value := range metadata {
		keys, values = append(keys, key), append(values, value)
	}
	series := len(r.groups)
	rate, err := parallel(ctx, r.options.Clients, r.options.Register, func(ctx context.Context, i int) error {
		id := fmt.Sprintf("group-%d-%09d", series, i)
		return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertRaw, id, "site", "template", rawMetadata, rawBody); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, insertFive, id, keys, values)
			return err
		})
	})
	r.groups = append(r.groups, rate)
	return rate, err
}

// streamRows returns the rate of rows of a SELECT of n rows with the columns of a list;
// 0 without PostgreSQL.
func (r *Raw) streamRows(ctx context.Context, n int, id, template, site string, metadata map[string]string) (float64, error) {
	if r == nil {
		return 0, nil
	}
	for _, statement := range []struct {
		sql  string
		args []any
	}{{`TRUNCATE tko_bench_rows`, nil}, {fillSet, []any{id, template, site, metadata, n}}, {`VACUUM ANALYZE tko_bench_rows`, nil}} {
		if _, err := r.pool.Exec(ctx, statement.sql, statement.args...); err != nil {
			return 0, err
		}
	}
	var best float64
	for range 3 {
		began := time.Now()
		rows, err := r.pool.Query(ctx, streamSet)
		if err != nil {
			return 0, err
		}
		var text [4]string
		var updated time.Time
		for rows.Next() {
			if err := rows.Scan(&text[0], &text[1], &text[2], &text[3], &updated); err != nil {
				rows.Close()
				return 0, err
			}
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
		best = max(best, float64(n)/time.Since(began).Seconds())
	}
	r.streams = append(r.streams, best)
	return best, nil
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
	Groups  []float64 `json:"groups"`  // transactions per second with a row and its five metadata rows
	Streams []float64 `json:"streams"` // rows per second of a SELECT of all rows
}

// Rates returns the rates measured so far; none without PostgreSQL.
func (r *Raw) Rates() RawRates {
	if r == nil {
		return RawRates{}
	}
	return RawRates{Inserts: r.inserts, Groups: r.groups, Streams: r.streams}
}

func (r RawRates) String() string {
	if len(r.Inserts) == 0 && len(r.Groups) == 0 && len(r.Streams) == 0 {
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
	groups := ""
	if len(r.Groups) > 0 {
		groups = span(r.Groups) + " transactions/s of one row with five metadata rows, "
	}
	return fmt.Sprintf("Raw PostgreSQL in the same run, measured just before each comparison: %s single-row INSERT transactions/s, %s%s rows/s of SELECT.",
		span(r.Inserts), groups, span(r.Streams))
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

// processorTime returns the processor time that PostgreSQL's processes have used so far,
// if it runs on this machine; otherwise 0.
func (d database) processorTime(ctx context.Context) (sum time.Duration) {
	var pid int
	if err := d.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return 0
	}
	server, name := parent(pid)
	if server == 0 || name != "postgres" {
		return 0
	}
	sum = processorTime(server)
	for _, child := range childrenOf(server) {
		sum += processorTime(child)
	}
	return sum
}
