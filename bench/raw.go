package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is what PostgreSQL does by itself, without TKO. Zeros are not known.
type Raw struct {
	Insert float64 `json:"insert,omitempty"` // single-row INSERT transactions per second, with the same clients
	Stream float64 `json:"stream,omitempty"` // rows per second of a SELECT of rows of a list's size
}

const (
	createRaw = `CREATE TABLE tko_bench_raw (id text PRIMARY KEY, site text, template text, metadata jsonb, body text)`
	dropRaw   = `DROP TABLE IF EXISTS tko_bench_raw`
)

// MeasureRaw measures PostgreSQL with rows of about the size of a deployment's,
// in a table of its own that goes at the end.
func MeasureRaw(ctx context.Context, dsn string, o Options) (raw Raw, err error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return Raw{}, err
	}
	config.MaxConns = int32(o.Clients) //nolint:gosec // few
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return Raw{}, err
	}
	defer pool.Close()
	for _, sql := range []string{dropRaw, createRaw} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return Raw{}, err
		}
	}
	defer func() {
		if _, dropped := pool.Exec(context.WithoutCancel(ctx), dropRaw); err == nil {
			err = dropped
		}
	}()
	body := strings.Repeat("x", 100)
	const metadata = `{"channel":"stable","NetworkFunction.name":"upf","NetworkFunction.variant.version":"v1"}`
	raw.Insert, err = parallel(ctx, o.Clients, o.Register, func(ctx context.Context, i int) error {
		_, err := pool.Exec(ctx, `INSERT INTO tko_bench_raw VALUES ($1, $2, $3, $4, $5)`, fmt.Sprintf("one-%09d", i), "site", "template", metadata, body)
		return err
	})
	if err != nil {
		return raw, err
	}
	_, err = pool.Exec(ctx, `INSERT INTO tko_bench_raw SELECT 'many-' || i, 'site', 'template', $1, $2 FROM generate_series(1, $3::int) i`, metadata, body, o.Deployments)
	if err != nil {
		return raw, err
	}
	if _, err := pool.Exec(ctx, `VACUUM ANALYZE tko_bench_raw`); err != nil {
		return raw, err
	}
	began, n := time.Now(), 0
	rows, err := pool.Query(ctx, `SELECT id, site, template, metadata::text, body FROM tko_bench_raw ORDER BY id`)
	if err != nil {
		return raw, err
	}
	defer rows.Close()
	var id, site, template, meta, text string
	for rows.Next() {
		if err := rows.Scan(&id, &site, &template, &meta, &text); err != nil {
			return raw, err
		}
		n++
	}
	raw.Stream = float64(n) / time.Since(began).Seconds()
	return raw, rows.Err()
}

// A database is the server's, looked at from outside.
type database struct{ conn *pgx.Conn }

// size is what the database takes on the disk.
func (d database) size(ctx context.Context) (bytes int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&bytes)
	return bytes, err
}

// transactions is how many there were so far, this one not yet.
func (d database) transactions(ctx context.Context) (n int64, err error) {
	err = d.conn.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, err
}
