package postgres

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How often the head is looked at: seldom if the database tells of commits.
const (
	slowPoll = 15 * time.Second
	fastPoll = time.Second
	maxPause = 10 * time.Second // between attempts to connect again
)

// listen calls wake soon after every commit of any server, until the database
// is closed.
func (db *database) listen(ctx context.Context, config *pgx.ConnConfig, wake func(), log *slog.Logger) {
	ctx, db.stop = context.WithCancel(ctx)
	db.wait.Go(func() {
		pause := 100 * time.Millisecond
		for ctx.Err() == nil {
			began := time.Now()
			err := db.hear(ctx, config, wake)
			if ctx.Err() != nil {
				return
			}
			wake() // something may have been missed
			if failure := (*pgconn.PgError)(nil); errors.Is(err, errDeaf) || errors.As(err, &failure) && failure.Code == codeFeature {
				log.InfoContext(ctx, "the database has no LISTEN, so it is polled", slog.Any("err", err))
				db.poll(ctx, wake)
				return
			}
			if time.Since(began) > maxPause {
				pause = 100 * time.Millisecond
			}
			log.WarnContext(ctx, "lost the connection that listens to the database, connecting again",
				slog.Any("err", err), slog.Duration("pause", pause))
			select {
			case <-time.After(pause):
				pause = min(2*pause, maxPause)
			case <-ctx.Done():
			}
		}
	})
}

// codeFeature is PostgreSQL's (and its relatives') for what isn't there.
const codeFeature = "0A000"

var errDeaf = errors.New("LISTEN is not supported")

// hear listens on a connection of its own until that is lost.
func (db *database) hear(ctx context.Context, config *pgx.ConnConfig, wake func()) error {
	if !db.notify {
		return errDeaf
	}
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is done with
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		if failure := (*pgconn.PgError)(nil); errors.As(err, &failure) && failure.Code[:2] == "42" {
			return errDeaf
		}
		return err
	}
	wake() // what happened while nobody listened
	for {
		if err := db.hearOne(ctx, conn); err != nil {
			return err
		}
		wake()
	}
}

// hearOne waits for a commit, or for a while: then it asks whether the
// connection still works.
func (db *database) hearOne(ctx context.Context, conn *pgx.Conn) error {
	limited, cancel := context.WithTimeout(ctx, slowPoll)
	defer cancel()
	_, err := conn.WaitForNotification(limited)
	if err == nil || ctx.Err() != nil || limited.Err() == nil {
		return err
	}
	if pgconn.Timeout(err) && !conn.IsClosed() {
		return conn.Ping(ctx)
	}
	return err
}

// poll looks at the head where LISTEN isn't to be had.
func (db *database) poll(ctx context.Context, wake func()) {
	ticker := time.NewTicker(fastPoll)
	defer ticker.Stop()
	last := [2]int64{-1, -1}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var now [2]int64
		err := db.pool.QueryRow(ctx, "SELECT position, (SELECT count(*) FROM work WHERE lease_until = 0 AND due <= "+db.Dialect().Now+
			") FROM head WHERE one = 1").Scan(&now[0], &now[1])
		if err == nil && now != last {
			last = now
			wake()
		}
	}
}
