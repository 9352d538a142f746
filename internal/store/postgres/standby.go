package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

const (
	// standbyCheck is the interval at which standbys are checked.
	standbyCheck = time.Second
	// standbyTimeout limits a check, and opening a connection.
	standbyTimeout = 5 * time.Second
	// standbyLag is the time within which a standby must reach the position of a
	// list; otherwise the list is read from the primary.
	standbyLag = 100 * time.Millisecond
	// standbyPause is the interval at which a list checks the position.
	standbyPause = 5 * time.Millisecond
)

// checkStandby returns whether the server is a standby, and its position.
const checkStandby = "SELECT pg_is_in_recovery(), (SELECT position FROM head WHERE one = 1)"

// A standby is a hot standby of the database.
type standby struct {
	*database        // its pool; it has no standbys
	primary   string // its identity
	where     string
	log       *slog.Logger
	usable    atomic.Bool
	reported  atomic.Bool // that it is not usable
}

// An unfitError reports that a server is not a standby of the database.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return e.text }

// selectIdentity returns what a database and its standbys have in common, and no other
// database.
const selectIdentity = "SELECT CAST((SELECT system_identifier FROM pg_control_system()) AS text) || '/' || CAST(oid AS text) FROM pg_database WHERE datname = current_database()"

// identity returns the identity of the database; "" if the user may not read it.
func (db *database) identity(ctx context.Context) (identity string, err error) {
	err = db.pool.QueryRow(ctx, selectIdentity).Scan(&identity)
	if refused(err) {
		return "", nil
	}
	return identity, err
}

// openStandbys opens the pools of the standbys, and starts to check them. One that can't
// be reached is used once it can be. It returns an ErrInvalid for a server that is no
// standby.
func (db *database) openStandbys(ctx context.Context, dsns []string, connections int, log *slog.Logger) error {
	if len(dsns) == 0 {
		return nil
	}
	primary, err := db.identity(ctx)
	if err != nil {
		return err
	}
	for _, dsn := range dsns {
		config, err := configure(dsn, connections)
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "a DSN of --store-replicas can't be read: %s", dsnHint)
		}
		config.ConnConfig.ConnectTimeout = min(config.ConnConfig.ConnectTimeout, standbyTimeout)
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		lists := max(config.MaxConns-reserved, config.MaxConns/2)
		s := &standby{
			where: fmt.Sprintf("%s:%d/%s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database),
			log:   log, primary: primary,
			database: &database{
				pool: pool, closing: db.closing, readers: make(chan struct{}, lists),
				dialect: db.dialect, lateral: db.lateral, planned: db.planned, idleLimit: db.idleLimit,
			},
		}
		db.standbys = append(db.standbys, s)
		if unfit, ok := errors.AsType[*unfitError](s.check(ctx)); ok {
			return tko.Errorf(tko.ErrInvalid, "--store-replicas names %s, but it %s: name hot standbys of the database of --store", s.where, unfit)
		}
	}
	return nil
}

// watchStandbys checks the standbys until the database is closed.
func (db *database) watchStandbys(ctx context.Context) {
	for _, s := range db.standbys {
		db.wait.Go(func() {
			ticker := time.NewTicker(standbyCheck)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					_ = s.check(ctx) // reports the error
				case <-ctx.Done():
					return
				}
			}
		})
	}
}

// check checks whether a standby can be used.
func (s *standby) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	var recovering bool
	var position int64
	err := s.pool.QueryRow(ctx, checkStandby).Scan(&recovering, &position)
	if err == nil && !recovering {
		err = &unfitError{"is not a hot standby (pg_is_in_recovery() is false)"}
	}
	if err == nil && s.primary != "" {
		var identity string
		if identity, err = s.identity(ctx); err == nil && identity != "" && identity != s.primary {
			err = &unfitError{"is a standby of another database"}
		}
	}
	s.report(ctx, err)
	return err
}

// report records whether the standby is usable, and logs it if that has changed.
func (s *standby) report(ctx context.Context, err error) {
	s.usable.Store(err == nil)
	if err == nil {
		if s.reported.Swap(false) {
			s.log.InfoContext(ctx, "the replica is used for reads again", "replica", s.where)
		}
		return
	}
	if context.Cause(ctx) == nil && !s.reported.Swap(true) {
		s.log.WarnContext(ctx, "the replica can't be used: reading from the primary", "replica", s.where, "err", err)
	}
}

// HasStandby reports whether a standby is usable.
func (db *database) HasStandby() bool {
	for _, s := range db.standbys {
		if s.usable.Load() {
			return true
		}
	}
	return false
}

// BeginAt starts a transaction for a list on a standby that has reached a position, or
// reaches it soon. It returns nil if there is none.
func (db *database) BeginAt(ctx context.Context, position int64) sqldb.Tx {
	first := int(db.turn.Add(1))
	for limit := time.Now().Add(standbyLag); ; {
		behind := false
		for i := range db.standbys {
			s := db.standbys[(first+i)%len(db.standbys)]
			if !s.usable.Load() {
				continue
			}
			tx, late := s.begin(ctx, position)
			if tx != nil {
				return tx
			}
			behind = behind || late
		}
		if !behind || time.Until(limit) < standbyPause {
			return nil
		}
		if pause.For(ctx, standbyPause) != nil {
			return nil
		}
	}
}

// begin starts a transaction for a list if the standby has reached a position; late is
// true if it hasn't yet.
func (s *standby) begin(ctx context.Context, position int64) (tx sqldb.Tx, late bool) {
	select {
	case s.readers <- struct{}{}:
	default: // other lists use all connections
		return nil, false
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		<-s.readers
		s.report(ctx, err)
		return nil, false
	}
	t := &standbyTx{
		transaction: &transaction{db: s.database, conn: conn, mode: sqldb.List, begin: s.listBegin(), release: func() { <-s.readers }},
		standby:     s,
	}
	reached, err := t.reached(ctx, position)
	if err == nil && reached {
		return t, false
	}
	t.Rollback() //nolint:contextcheck // it ends the transaction though the context ended
	return nil, err == nil
}

// A standbyTx is a transaction on a standby. After an error, the standby isn't used
// until it has been checked, so that a retry uses another one, or the primary.
type standbyTx struct {
	*transaction
	standby *standby
}

func (t *standbyTx) Run(ctx context.Context, statements ...sqldb.Statement) error {
	err := t.transaction.Run(ctx, statements...)
	if err != nil && transient(err) {
		t.standby.report(ctx, err)
	}
	return err
}

// reached reports whether the transaction's snapshot has reached a position.
func (t *standbyTx) reached(ctx context.Context, position int64) (reached bool, err error) {
	err = t.Run(ctx, sqldb.Statement{SQL: checkStandby, Scan: scanReached(position, &reached)})
	return reached, err
}

func scanReached(position int64, reached *bool) func(sqldb.Row) error {
	return func(from sqldb.Row) error {
		var recovering bool
		var at int64
		err := from.Scan(&recovering, &at)
		*reached = err == nil && recovering && at >= position
		return err
	}
}

// RunAt runs a statement on a standby that has reached a position.
func (db *database) RunAt(ctx context.Context, position int64, statement sqldb.Statement) (ran bool) {
	first := int(db.turn.Add(1))
	for i := range db.standbys {
		s := db.standbys[(first+i)%len(db.standbys)]
		if s.usable.Load() && s.run(ctx, position, statement) {
			return true
		}
	}
	return false
}

// run runs a statement in one round trip, and returns false if the snapshot has not
// reached the position.
func (s *standby) run(ctx context.Context, position int64, statement sqldb.Statement) (ran bool) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		s.report(ctx, err)
		return false
	}
	defer conn.Release()
	reached := false
	err = s.send(ctx, conn.Conn(), []string{beginRead}, "COMMIT",
		sqldb.Statement{SQL: checkStandby, Scan: scanReached(position, &reached)}, statement)
	if err != nil && transient(err) {
		s.report(ctx, err)
	}
	return err == nil && reached
}
