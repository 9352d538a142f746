package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tko-orchestrator/tko"
)

const (
	slowPoll = 15 * time.Second // how often the database is looked at that tells of commits
	fastPoll = time.Second      // and one that doesn't
	maxEcho  = 5 * time.Second  // how long what we tell ourselves may take to arrive

	minPause = 100 * time.Millisecond // between attempts to connect again
	maxPause = 5 * time.Second
)

// listen calls wake soon after every commit of any server, until the database
// is closed.
func (db *database) listen(ctx context.Context, config *pgx.ConnConfig, wake func(), log *slog.Logger) {
	ctx, db.stop = context.WithCancel(ctx)
	db.wait.Go(func() {
		pause := minPause
		away := false
		for ctx.Err() == nil {
			err := db.hear(ctx, config, wake, func() {
				if away {
					log.InfoContext(ctx, "the database is back")
				}
				away, pause = false, minPause
			})
			if ctx.Err() != nil {
				return
			}
			wake() // something may have been missed
			if errors.Is(err, errDeaf) {
				log.InfoContext(ctx, "the database doesn't tell of commits, so it is looked at every now and then",
					slog.Any("err", err), slog.Duration("every", fastPoll))
				db.poll(ctx, wake)
				return
			}
			if !away {
				away = true
				log.WarnContext(ctx, "lost the connection that listens to the database: calls wait until it is back", slog.Any("err", err))
			}
			// Connections that were made before are lost, too.
			db.pool.Reset()
			select {
			case <-time.After(pause):
				pause = min(2*pause, maxPause)
			case <-ctx.Done():
			}
		}
	})
}

var errDeaf = errors.New("LISTEN and NOTIFY are not to be had")

// hear listens on a connection of its own until that is lost.
func (db *database) hear(ctx context.Context, config *pgx.ConnConfig, wake, connected func()) error {
	if !db.notify {
		return errDeaf
	}
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is done with
	if _, err := conn.PgConn().Exec(ctx, "LISTEN "+channel).ReadAll(); err != nil {
		if refused(err) {
			return errors.Join(errDeaf, err)
		}
		return err
	}
	if err := db.echo(ctx, conn); err != nil {
		return err
	}
	connected()
	wake() // what happened while nobody listened
	last := int64(-1)
	for {
		if err := db.hearOne(ctx, conn, &last); err != nil {
			return err
		}
		wake()
	}
}

// echo tells a connection that listens something, because some take LISTEN and
// never tell anything: poolers, and databases in which it does nothing.
func (db *database) echo(ctx context.Context, conn *pgx.Conn) error {
	nonce := rand.Text()
	if _, err := db.pool.Exec(ctx, "SELECT pg_notify('"+channel+"', '"+nonce+"')"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, maxEcho)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(limited)
		switch {
		case err == nil && notification.Payload == nonce:
			return nil
		case err == nil:
		case limited.Err() != nil && ctx.Err() == nil && pgconn.Timeout(err):
			return errors.Join(errDeaf, errors.New("LISTEN was taken, but nothing arrives: is there a pooler between?"))
		default:
			return err
		}
	}
}

// hearOne waits for a commit, or for a while: then it looks whether it missed
// any, and finds out whether the connection still works.
func (db *database) hearOne(ctx context.Context, conn *pgx.Conn, last *int64) error {
	for {
		limited, cancel := context.WithTimeout(ctx, slowPoll)
		_, err := conn.WaitForNotification(limited)
		late := limited.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !late || !pgconn.Timeout(err) || conn.IsClosed() {
			return err
		}
		before := *last
		limited, cancel = context.WithTimeout(ctx, slowPoll)
		err = conn.QueryRow(limited, "SELECT position FROM head WHERE one = 1").Scan(last)
		cancel()
		if err != nil || *last != before {
			return err
		}
	}
}

// poll looks at the head, and at what is due when, where LISTEN isn't to be
// had.
func (db *database) poll(ctx context.Context, wake func()) {
	ticker := time.NewTicker(fastPoll)
	defer ticker.Stop()
	look := "SELECT position, " +
		"(SELECT COALESCE(min(due), 0) FROM work WHERE queue = '" + tko.QueuePrepare + "'), " +
		"(SELECT COALESCE(min(due), 0) FROM work WHERE queue = '" + tko.QueueSchedule + "') " +
		"FROM head WHERE one = 1"
	last := [3]int64{-1}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var now [3]int64
		err := db.pool.QueryRow(ctx, look).Scan(&now[0], &now[1], &now[2])
		if err == nil && now != last {
			last = now
			wake()
		}
	}
}
