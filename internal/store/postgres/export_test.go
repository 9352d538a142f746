package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Connect returns a connection with the settings of those of a store.
func Connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := configure(dsn, 0)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	return conn, config.AfterConnect(ctx, conn)
}
