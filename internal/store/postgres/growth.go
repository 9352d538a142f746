package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/pause"
)

// Statements are planned once for a connection, with what PostgreSQL knows of the tables at
// that time. In a new database it knows nothing: all indexes cost the same, and it may choose
// one that reads every record of a kind. It plans again only when statistics are collected,
// which autovacuum does a minute or more later, or never if it is off. So each store collects
// them itself whenever a table has grown by a multiple of its size.

const (
	// grownFactor is the growth of a table after which its statistics are collected again. A
	// table of a million rows was collected seven times.
	grownFactor = 5
	// grownPages is the size of a table, in pages, from which it has statistics. Whatever the
	// plan, a smaller one is read in less than a millisecond.
	grownPages = 8
	// growthPause is the time between two examinations of the tables.
	growthPause = time.Second
)

// grownTables returns the tables of the store, as the server names them, that have grown, or one
// of whose indexes has: one of the deployments at sites is empty as long as there are only sites,
// and looks empty until the next collection. Its parameters are grownPages and grownFactor. A
// table that has the size of its statistics but no statistics of its columns was vacuumed only, or
// its statistics were lost in an upgrade of the server. Only the owner of a table, or a member of
// that role, may collect them.
const grownTables = `SELECT DISTINCT s.owner::regclass::text FROM (
	SELECT c.oid AS owner, c.relnamespace, c.relname, r.relkind, r.relpages, pg_relation_size(r.oid) / current_setting('block_size')::bigint AS pages
	FROM pg_class c
	CROSS JOIN LATERAL (SELECT c.oid UNION ALL SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid) AS o (oid)
	JOIN pg_class r ON r.oid = o.oid
	WHERE c.relkind = 'r' AND c.relnamespace = (SELECT h.relnamespace FROM pg_class h WHERE h.oid = 'head'::regclass) AND pg_has_role(c.relowner, 'USAGE')
) AS s
WHERE s.pages >= $1 AND (s.pages > s.relpages * $2 OR s.relkind = 'r' AND NOT EXISTS (
	SELECT 1 FROM pg_stats t JOIN pg_namespace n ON n.nspname = t.schemaname WHERE n.oid = s.relnamespace AND t.tablename = s.relname))`

// wrote reports to watchGrowth that a transaction was committed.
func (db *database) wrote() {
	select {
	case db.grown <- struct{}{}:
	default: // it knows already
	}
}

// watchGrowth collects statistics of tables that have grown, until ctx ends. It examines the
// tables at its start, and after commits of this store.
func (db *database) watchGrowth(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) {
	if !db.planned {
		return // the database has plans of another kind
	}
	db.wrote()
	db.wait.Go(func() {
		for {
			select {
			case <-db.grown:
			case <-ctx.Done():
				return
			}
			switch err := db.collectStatistics(ctx, config, log); {
			case refused(err):
				log.InfoContext(ctx, "the database refuses to collect statistics: plans are as good as those that autovacuum collects", slog.Any("err", err))
				return
			case err != nil && ctx.Err() == nil:
				log.WarnContext(ctx, "collecting statistics of tables that have grown failed: it is tried again", slog.Any("err", err))
				db.wrote()
			}
			if pause.For(ctx, growthPause) != nil {
				return
			}
		}
	})
}

// collectStatistics collects the statistics of tables that have grown. Another store may do the
// same at the same time: a table that is being collected is left out.
func (db *database) collectStatistics(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) error {
	rows, err := db.pool.Query(ctx, grownTables, grownPages, grownFactor)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return err
	}
	// A connection of its own: it may take a second, for which calls shouldn't wait.
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is no longer used
	for _, table := range tables {
		began := time.Now()
		if _, err := conn.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+table, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		log.DebugContext(ctx, "collected statistics of a table that has grown", slog.String("table", table), slog.Duration("took", time.Since(began)))
	}
	return nil
}
