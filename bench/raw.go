package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Raw is what PostgreSQL does by itself, without TKO.
type Raw struct {
	Insert float64 // single-row INSERT transactions per second, with the same clients
	Stream float64 // rows per second of a SELECT of rows of a list's size
}

// MeasureRaw measures PostgreSQL with rows of about the size of a deployment's.
func MeasureRaw(ctx context.Context, dsn string, o Options) (Raw, error) {
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
	if _, err := pool.Exec(ctx, `CREATE TABLE raw (id text PRIMARY KEY, site text, template text, metadata jsonb, body text)`); err != nil {
		return Raw{}, err
	}
	body := strings.Repeat("x", 100)
	const metadata = `{"wave":"wave-01","NetworkFunction.name":"upf","NetworkFunction.variant.version":"v1"}`
	var raw Raw
	raw.Insert, err = parallel(ctx, o.Clients, o.Register, func(ctx context.Context, i int) error {
		_, err := pool.Exec(ctx, `INSERT INTO raw VALUES ($1, $2, $3, $4, $5)`, fmt.Sprintf("one-%09d", i), "site", "template", metadata, body)
		return err
	})
	if err != nil {
		return raw, err
	}
	_, err = pool.Exec(ctx, `INSERT INTO raw SELECT 'many-' || i, 'site', 'template', $1, $2 FROM generate_series(1, $3::int) i`, metadata, body, o.Deployments)
	if err != nil {
		return raw, err
	}
	if _, err := pool.Exec(ctx, `VACUUM ANALYZE raw`); err != nil {
		return raw, err
	}
	began, n := time.Now(), 0
	rows, err := pool.Query(ctx, `SELECT id, site, template, metadata::text, body FROM raw ORDER BY id`)
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
