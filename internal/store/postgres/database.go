package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A database is a PostgreSQL database, or one with PostgreSQL's protocol.
type database struct {
	pool       *pgxpool.Pool
	skipLocked bool // it has FOR UPDATE SKIP LOCKED
	lateral    bool // it has CROSS JOIN LATERAL
	notify     bool // it has NOTIFY
	planned    bool // connections cache generic plans
	idleLimit  bool // it ends idle transactions

	dialect sqldb.Dialect
	texts   sqldb.RenderCache
	readers chan struct{} // one element per list; limits lists, so that short calls find a connection

	standbys []*standby
	turn     atomic.Uint32 // of the standbys

	stop    func()
	wait    sync.WaitGroup
	closing chan struct{}
	grown   chan struct{} // capacity 1: tables may have grown
}

// channel is the NOTIFY channel for commits.
const channel = "tko_commit"

// probe detects the features of the database.
func (db *database) probe(ctx context.Context) (err error) {
	for _, feature := range []struct {
		has *bool
		sql string
	}{
		{&db.skipLocked, "SELECT key FROM work WHERE queue = '' LIMIT 1 FOR UPDATE SKIP LOCKED"},
		{&db.lateral, "SELECT l.o FROM head h CROSS JOIN LATERAL (SELECT h.one AS o) AS l"},
		{&db.notify, "SELECT pg_notify('" + channel + "', '')"},
		{&db.idleLimit, "SHOW idle_in_transaction_session_timeout"},
		{&db.planned, "SHOW plan_cache_mode"},
	} {
		_, err := db.pool.Exec(ctx, feature.sql)
		if err != nil && !refused(err) {
			return err
		}
		*feature.has = err == nil
	}
	return nil
}

func (db *database) Dialect() sqldb.Dialect { return db.dialect }

// idPrefix is what the indexes entity_template, entity_parent and entity_metaset contain
// of a deployment's ID.
const idPrefix = 26

func (db *database) makeDialect() sqldb.Dialect {
	d := sqldb.Dialect{
		Now:         "(CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint))",
		ForUpdate:   "FOR UPDATE",
		OriginAlone: true,
		SkipLocked:  "FOR UPDATE",
		In:          func(expression, parameter string) string { return expression + " = ANY(" + parameter + ")" },
		Among:       amongArray,
		List:        func(list []string) any { return list },
		Ints:        func(list []int64) any { return list },
		IDPrefix:    idPrefix,
		Size:        "SELECT pg_database_size(current_database())",
		HistorySize: "SELECT CASE WHEN c.reltuples < 10000 THEN (SELECT count(*) FROM change) ELSE c.reltuples::bigint END, pg_total_relation_size(c.oid) " +
			"FROM pg_class c WHERE c.oid = 'change'::regclass",
		Lateral: db.lateral,
		Regexp:  func(expression, parameter string) string { return expression + " ~ " + parameter },
		Rows:    rowsTable,
	}
	if db.skipLocked {
		d.SkipLocked = "FOR UPDATE SKIP LOCKED"
	}
	if db.notify {
		d.Notify = "SELECT pg_notify('" + channel + "', $1)"
	}
	return d
}

// amongArray makes the server hash a list. It would search an array parameter
// linearly for every row, and a join would follow the order of the list.
func amongArray(expression, parameter string) string {
	return "(" + expression + " IN (SELECT unnest(" + parameter + "::text[]))) IS TRUE"
}

var arrayTypes = map[sqldb.Type]string{
	sqldb.Text: "text[]", sqldb.Int: "bigint[]", sqldb.Bytes: "bytea[]", sqldb.Bool: "boolean[]",
}

var errClosed = errors.New("the store is closed")

// rowsTable returns a table of parameters, with one array for each column.
func rowsTable(columns []sqldb.Column, first int) string {
	var arrays, names strings.Builder
	for i, c := range columns {
		if i > 0 {
			arrays.WriteString(", ")
			names.WriteString(", ")
		}
		fmt.Fprintf(&arrays, "$%d::%s", first+i, arrayTypes[c.Type])
		names.WriteString(c.Name)
	}
	return "unnest(" + arrays.String() + ") AS r (" + names.String() + ")"
}

// Connections implements relational.Connections.
func (db *database) Connections() (used, idle, limit int) {
	stat := db.pool.Stat()
	return int(stat.AcquiredConns()), int(stat.IdleConns()), int(stat.MaxConns())
}

func (db *database) Close() error {
	close(db.closing)
	db.stop()
	db.wait.Wait()
	for _, s := range db.standbys {
		s.pool.Close()
	}
	db.pool.Close()
	return nil
}

func (db *database) Begin(ctx context.Context, mode sqldb.Mode) (sqldb.Tx, error) {
	release := func() {}
	if mode == sqldb.List {
		select {
		case db.readers <- struct{}{}:
			release = func() { <-db.readers }
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-db.closing:
			return nil, errClosed
		}
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		release()
		return nil, err
	}
	begin := []string{beginRead}
	switch mode {
	case sqldb.Read:
	case sqldb.Write:
		begin[0] = "BEGIN ISOLATION LEVEL READ COMMITTED"
	case sqldb.List:
		begin = db.listBegin()
	}
	return &transaction{db: db, conn: conn, mode: mode, begin: begin, release: release}, nil
}

const beginRead = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

// listBegin returns the statements that begin the transaction of a list.
func (db *database) listBegin() []string {
	begin := []string{beginRead}
	if db.idleLimit { // the client may read the rows slowly
		begin = append(begin, "SET LOCAL idle_in_transaction_session_timeout = '1h'")
	}
	if db.planned { // a plan for the actual values pays
		begin = append(begin, "SET LOCAL plan_cache_mode = auto")
	}
	return begin
}

func (db *database) Run(ctx context.Context, s sqldb.Statement) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if s.Scan == nil || s.Idle() {
		return db.send(ctx, conn.Conn(), nil, "", s)
	}
	return db.explain(ctx, conn.Conn(), db.query(ctx, conn.Conn(), s))
}

// query runs one statement, for which pgx needs less than for a batch.
func (db *database) query(ctx context.Context, conn *pgx.Conn, s sqldb.Statement) error {
	rows, err := conn.Query(ctx, db.texts.Render(&db.dialect, s), arguments(s)...)
	if err != nil {
		return err
	}
	return scanRows(rows, s.Scan)
}

// arguments returns the parameters of a statement, with those of its rows.
func arguments(s sqldb.Statement) []any {
	args := slices.Clip(s.Args)
	if s.Columns != nil {
		args = append(args, transpose(s.Columns, s.Rows)...)
	}
	return args
}

func scanRows(rows pgx.Rows, scan func(sqldb.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("%w: %w", errScan, err)
		}
	}
	return rows.Err()
}

// A transaction sends BEGIN with its first statements, to save a round trip.
type transaction struct {
	db    *database
	conn  *pgxpool.Conn
	mode  sqldb.Mode
	begin []string // not yet sent
	ended bool

	release func()
}

func (t *transaction) Run(ctx context.Context, statements ...sqldb.Statement) error {
	begin := t.begin
	t.begin = nil
	return t.db.send(ctx, t.conn.Conn(), begin, "", statements...)
}

func (t *transaction) Commit(ctx context.Context, statements ...sqldb.Statement) error {
	begin := t.begin
	t.begin = nil
	err := t.db.send(ctx, t.conn.Conn(), begin, "COMMIT", statements...)
	if err == nil {
		t.ended = true
		if t.mode == sqldb.Write {
			t.db.wrote()
		}
		t.conn.Release()
		t.release()
		return nil
	}
	if t.mode != sqldb.Write || outcomeKnown(err) {
		return err
	}
	return &sqldb.UnknownOutcomeError{Err: err}
}

func (t *transaction) Rollback() {
	if t.ended {
		return
	}
	t.ended = true
	// If it was not begun, there is nothing to end. If ROLLBACK fails, the pool
	// closes the connection, because it is still in a transaction.
	if t.begin == nil {
		ctx, cancel := context.WithTimeout(context.Background(), maxRollback)
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
		cancel()
	}
	t.conn.Release()
	t.release()
}

// maxRollback limits the time that ROLLBACK may take.
const maxRollback = 10 * time.Second

var errScan = errors.New("a result can't be read")

// send sends statements together and reads their results.
func (db *database) send(ctx context.Context, conn *pgx.Conn, begin []string, end string, statements ...sqldb.Statement) error {
	batch := new(pgx.Batch)
	for _, sql := range begin {
		batch.Queue(sql)
	}
	for _, s := range statements {
		if s.Idle() {
			continue
		}
		query := batch.Queue(db.texts.Render(&db.dialect, s), arguments(s)...)
		if s.Scan != nil {
			query.Query(func(rows pgx.Rows) error { return scanRows(rows, s.Scan) })
		}
	}
	if end != "" {
		batch.Queue(end)
	}
	if batch.Len() == 0 {
		return nil
	}
	return db.explain(ctx, conn, conn.SendBatch(ctx, batch).Close())
}

// explain closes the connection after an error that others would get, too, and adds
// a remedy to errors that have one.
func (db *database) explain(ctx context.Context, conn *pgx.Conn, err error) error {
	switch {
	case isCode(err, codeReadOnly): // it is no longer the primary: the next connection may find the new one
		_ = conn.Close(ctx)
	case isCode(err, codeStatementEnded) && ctx.Err() == nil:
		return &relational.AwayError{Text: "the database took longer than a statement may: request less at a time, or raise statement_timeout in the DSN", Cause: err}
	}
	return err
}

// transpose returns an array for every column.
func transpose(columns []sqldb.Column, rows [][]any) []any {
	arrays := make([]any, len(columns))
	for i, c := range columns {
		switch c.Type {
		case sqldb.Text:
			arrays[i] = column[string](rows, i)
		case sqldb.Int:
			arrays[i] = column[int64](rows, i)
		case sqldb.Bool:
			arrays[i] = column[bool](rows, i)
		default:
			arrays[i] = column[[]byte](rows, i)
		}
	}
	return arrays
}

// column returns an array of the values of a column. It is an array of pointers only
// if some are NULL, because pointers take longer to encode.
func column[T any](rows [][]any, i int) any {
	array := make([]T, len(rows))
	for n, row := range rows {
		value, ok := row[i].(T)
		if !ok {
			return nullable[T](rows, i)
		}
		array[n] = value
	}
	return array
}

func nullable[T any](rows [][]any, i int) []*T {
	array := make([]*T, len(rows))
	for n, row := range rows {
		if value, ok := row[i].(T); ok {
			array[n] = &value
		}
	}
	return array
}
