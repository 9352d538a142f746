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
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

const (
	slowPoll    = 15 * time.Second // interval of polling a database that notifies of commits
	fastPoll    = time.Second      // interval of polling a database that doesn't
	maxDelivery = 5 * time.Second  // time limit for a notification to arrive

	minPause = 100 * time.Millisecond // between attempts to reconnect
	maxPause = 5 * time.Second
)

// listen calls wake with the news of every commit of any server, soon after it, until
// the database is closed.
func (db *database) listen(ctx context.Context, config *pgx.ConnConfig, wake func(relational.News), log *slog.Logger) {
	ctx, db.stop = context.WithCancel(ctx)
	db.watchStandbys(ctx)
	db.watchGrowth(ctx, config, log)
	db.wait.Go(func() {
		wait := minPause
		away := false
		for ctx.Err() == nil {
			err := db.listenOnce(ctx, config, wake, func() {
				if away {
					log.InfoContext(ctx, "the database is back")
				}
				away, wait = false, minPause
			})
			if ctx.Err() != nil {
				return
			}
			wake(relational.Everything()) // a commit may have been missed
			if errors.Is(err, errNoNotifications) {
				log.InfoContext(ctx, "the database does not notify of commits: polling it",
					slog.Any("err", err), slog.Duration("every", fastPoll))
				db.poll(ctx, wake)
				return
			}
			if !away {
				away = true
				log.WarnContext(ctx, "lost the connection that listens to the database: calls wait until it is back", slog.Any("err", err))
			}
			// Connections that were opened before are lost, too.
			db.pool.Reset()
			_ = pause.For(ctx, wait)
			wait = min(2*wait, maxPause)
		}
	})
}

var errNoNotifications = errors.New("LISTEN and NOTIFY are not available")

// listenOnce listens on its own connection until that is lost.
func (db *database) listenOnce(ctx context.Context, config *pgx.ConnConfig, wake func(relational.News), connected func()) error {
	if !db.notify {
		return errNoNotifications
	}
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is no longer used
	if _, err := conn.PgConn().Exec(ctx, "LISTEN "+channel).ReadAll(); err != nil {
		if refused(err) {
			return errors.Join(errNoNotifications, err)
		}
		return err
	}
	if err := db.checkNotifications(ctx, conn); err != nil {
		return err
	}
	connected()
	wake(relational.Everything()) // for commits before LISTEN
	last := int64(-1)
	for {
		news, err := db.awaitCommit(ctx, conn, &last)
		if err != nil {
			return err
		}
		wake(news)
	}
}

// checkNotifications sends a notification to a connection that listens. Some systems
// accept LISTEN and never send notifications: connection poolers, and databases in
// which LISTEN does nothing.
func (db *database) checkNotifications(ctx context.Context, conn *pgx.Conn) error {
	nonce := rand.Text()
	if _, err := db.pool.Exec(ctx, "SELECT pg_notify('"+channel+"', '"+nonce+"')"); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, maxDelivery)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(limited)
		switch {
		case err == nil && notification.Payload == nonce:
			return nil
		case err == nil:
		case limited.Err() != nil && ctx.Err() == nil && pgconn.Timeout(err):
			return errors.Join(errNoNotifications, errors.New("LISTEN was accepted, but no notification arrives: check whether a connection pooler is in between"))
		default:
			return err
		}
	}
}

// awaitCommit waits for a commit. Every slowPoll, it checks whether it missed one, and
// whether the connection still works.
func (db *database) awaitCommit(ctx context.Context, conn *pgx.Conn, last *int64) (relational.News, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, slowPoll)
		notification, err := conn.WaitForNotification(limited)
		late := limited.Err() != nil
		cancel()
		if err == nil {
			return relational.ParseNews(notification.Payload), nil
		}
		if ctx.Err() != nil || !late || !pgconn.Timeout(err) || conn.IsClosed() {
			return relational.News{}, err
		}
		before := *last
		limited, cancel = context.WithTimeout(ctx, slowPoll)
		err = conn.QueryRow(limited, "SELECT position FROM head WHERE one = 1").Scan(last)
		cancel()
		if err != nil || *last != before {
			return relational.Everything(), err
		}
	}
}

// poll polls the position of the log and the next due work, for databases without
// LISTEN.
func (db *database) poll(ctx context.Context, wake func(relational.News)) {
	ticker := time.NewTicker(fastPoll)
	defer ticker.Stop()
	query := "SELECT position, " +
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
		err := db.pool.QueryRow(ctx, query).Scan(&now[0], &now[1], &now[2])
		if err == nil && now != last {
			last = now
			wake(relational.Everything())
		}
	}
}
