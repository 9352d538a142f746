package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tko-orchestrator/tko"
)

// Raw is PostgreSQL without TKO. It runs similar work just before TKO does, so that
// both measure the machine in the same state.
type Raw struct {
	pool    *pgxpool.Pool
	options Options
	rates   RawRates
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
	err = r.execute(ctx, dropRaw, createRaw, createSix, createSet)
	if err == nil {
		_, err = pool.Exec(ctx, manyRaw, rawMetadata, rawBody, o.Deployments)
	}
	if err == nil {
		err = r.execute(ctx, `VACUUM ANALYZE tko_bench_raw`)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return r, nil
}

func (r *Raw) execute(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := r.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Close drops the table.
func (r *Raw) Close(ctx context.Context) error {
	err := r.execute(ctx, dropRaw)
	r.pool.Close()
	return err
}

// insert returns the rate of transactions with a single INSERT, with as many clients; 0
// without PostgreSQL.
func (r *Raw) insert(ctx context.Context) (rate float64, err error) {
	if r == nil {
		return 0, nil
	}
	series := len(r.rates.Inserts)
	rate, err = parallel(ctx, r.options.Clients, r.options.Register, func(ctx context.Context, i int) error {
		_, err := r.pool.Exec(ctx, insertRaw, fmt.Sprintf("one-%d-%09d", series, i), "site", "template", rawMetadata, rawBody)
		return err
	})
	r.rates.Inserts = append(r.rates.Inserts, rate)
	return rate, err
}

// insertGroup returns the rate of transactions that insert one row, and one row for
// each of some metadata, with as many clients; 0 without PostgreSQL.
func (r *Raw) insertGroup(ctx context.Context, metadata map[string]string) (rate float64, err error) {
	if r == nil {
		return 0, nil
	}
	keys := slices.Collect(maps.Keys(metadata))
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = metadata[key]
	}
	series := len(r.rates.Groups)
	rate, err = parallel(ctx, r.options.Clients, r.options.Register, func(ctx context.Context, i int) error {
		id := fmt.Sprintf("group-%d-%09d", series, i)
		return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insertRaw, id, "site", "template", rawMetadata, rawBody); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, insertFive, id, keys, values)
			return err
		})
	})
	r.rates.Groups = append(r.rates.Groups, rate)
	return rate, err
}

// streamRows returns the best rate of rows of a SELECT of n rows with the columns of a list,
// like those of a deployment; 0 without PostgreSQL.
func (r *Raw) streamRows(ctx context.Context, n int, id string, like tko.Deployment) (best float64, err error) {
	if r == nil {
		return 0, nil
	}
	if err := r.execute(ctx, `TRUNCATE tko_bench_rows`); err != nil {
		return 0, err
	}
	if _, err := r.pool.Exec(ctx, fillSet, id, string(like.Template), string(like.Site), like.Metadata, n); err != nil {
		return 0, err
	}
	if err := r.execute(ctx, `VACUUM ANALYZE tko_bench_rows`); err != nil {
		return 0, err
	}
	for range 3 {
		rate, err := r.selectAll(ctx, streamSet, new(time.Time))
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	r.rates.Streams = append(r.rates.Streams, best)
	return best, nil
}

// stream returns the rate of rows of a SELECT of all rows; 0 without PostgreSQL.
func (r *Raw) stream(ctx context.Context) (float64, error) {
	if r == nil {
		return 0, nil
	}
	rate, err := r.selectAll(ctx, streamRaw, new(string))
	r.rates.Streams = append(r.rates.Streams, rate)
	return rate, err
}

// selectAll returns the rate of rows of a SELECT with four columns of text and another one.
func (r *Raw) selectAll(ctx context.Context, sql string, last any) (float64, error) {
	began := time.Now()
	rows, err := r.pool.Query(ctx, sql)
	if err != nil {
		return 0, err
	}
	var text [4]string
	done, err := pgx.ForEachRow(rows, []any{&text[0], &text[1], &text[2], &text[3], last}, func() error { return nil })
	return float64(done.RowsAffected()) / time.Since(began).Seconds(), err
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
	return r.rates
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

// number returns the value of an expression.
func (d database) number(ctx context.Context, expression string) (n int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT `+expression).Scan(&n)
	return n, err
}

// transactions returns the number of transactions so far, without this one.
func (d database) transactions(ctx context.Context) (int64, error) {
	return d.number(ctx, `xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`)
}

// processorTime returns the processor time that PostgreSQL's processes have used so far,
// if it runs on this machine; otherwise 0.
func (d database) processorTime(ctx context.Context) (sum time.Duration) {
	pid, err := d.number(ctx, `pg_backend_pid()`)
	if err != nil {
		return 0
	}
	server, name := parent(int(pid))
	if server == 0 || name != "postgres" {
		return 0
	}
	return processorTimes(append(childrenOf(server), server))
}
