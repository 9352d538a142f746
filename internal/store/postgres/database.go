package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A database is a PostgreSQL database, or one that speaks like it.
type database struct {
	pool       *pgxpool.Pool
	skipLocked bool // it has FOR UPDATE SKIP LOCKED
	lateral    bool // it has CROSS JOIN LATERAL
	notify     bool // it has NOTIFY
	planned    bool // connections keep plans that fit any parameters
	idleLimit  bool // it ends transactions that are idle

	dialect relational.Dialect
	texts   relational.RenderCache
	readers chan struct{} // of lists; leaves connections to those that are quickly done

	stop func()
	wait sync.WaitGroup
	life chan struct{}
}

// channel is where commits are told of.
const channel = "tko_commit"

// probe finds out what the database can do.
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

func (db *database) Dialect() relational.Dialect { return db.dialect }

func (db *database) makeDialect() relational.Dialect {
	d := relational.Dialect{
		Now:        "(CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint))",
		ForUpdate:  "FOR UPDATE",
		SkipLocked: "FOR UPDATE",
		In:         func(expression, parameter string) string { return expression + " = ANY(" + parameter + ")" },
		Among:      amongArray,
		List:       func(list []string) any { return list },
		Ints:       func(list []int64) any { return list },
		Lateral:    db.lateral,
		Regexp:     func(expression, parameter string) string { return expression + " ~ " + parameter },
		Rows:       rowsTable,
	}
	if db.skipLocked {
		d.SkipLocked = "FOR UPDATE SKIP LOCKED"
	}
	if db.notify {
		d.Notify = []relational.Statement{{SQL: "SELECT pg_notify('" + channel + "', '')"}}
	}
	return d
}

// amongArray makes the server hash a list. An array that is a parameter it
// would search from its beginning, for every row, and a join would go through
// the list in its own order.
func amongArray(expression, parameter string) string {
	return "(" + expression + " IN (SELECT unnest(" + parameter + "::text[]))) IS TRUE"
}

var arrayTypes = map[relational.Type]string{
	relational.Text: "text[]", relational.Int: "bigint[]", relational.Bytes: "bytea[]", relational.Bool: "boolean[]",
}

var errClosed = errors.New("the store is closed")

// rowsTable is a table of parameters, each of which is a column.
func rowsTable(columns []relational.Column, first int) string {
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

func (db *database) Close() error {
	close(db.life)
	db.stop()
	db.wait.Wait()
	db.pool.Close()
	return nil
}

func (db *database) Begin(ctx context.Context, mode relational.Mode) (relational.Tx, error) {
	release := func() {}
	if mode == relational.List {
		select {
		case db.readers <- struct{}{}:
			release = func() { <-db.readers }
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-db.life:
			return nil, errClosed
		}
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		release()
		return nil, err
	}
	begin := []string{"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"}
	switch mode {
	case relational.Read:
	case relational.Write:
		begin[0] = "BEGIN ISOLATION LEVEL READ COMMITTED"
	case relational.List:
		if db.idleLimit { // whoever takes the rows may be slow
			begin = append(begin, "SET LOCAL idle_in_transaction_session_timeout = '1h'")
		}
		if db.planned { // what is selected matters more than planning costs
			begin = append(begin, "SET LOCAL plan_cache_mode = auto")
		}
	}
	return &transaction{db: db, conn: conn, mode: mode, begin: begin, release: release}, nil
}

func (db *database) Run(ctx context.Context, s relational.Statement) error {
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return db.send(ctx, conn.Conn(), nil, "", s)
}

// A transaction begins with its first statements, to save a round trip.
type transaction struct {
	db    *database
	conn  *pgxpool.Conn
	mode  relational.Mode
	begin []string // not yet sent
	over  bool

	release func()
}

func (t *transaction) Run(ctx context.Context, statements ...relational.Statement) error {
	begin := t.begin
	t.begin = nil
	return t.db.send(ctx, t.conn.Conn(), begin, "", statements...)
}

func (t *transaction) Commit(ctx context.Context, statements ...relational.Statement) error {
	begin := t.begin
	t.begin = nil
	err := t.db.send(ctx, t.conn.Conn(), begin, "COMMIT", statements...)
	if err == nil {
		t.over = true
		t.conn.Release()
		t.release()
		return nil
	}
	if t.mode != relational.Write || answered(err) {
		return err
	}
	return &relational.UnknownOutcomeError{Err: err}
}

func (t *transaction) Rollback() {
	if t.over {
		return
	}
	t.over = true
	// Not begun, nothing to end. Else a connection on which this fails is
	// thrown away by the pool, because it is in a transaction.
	if t.begin == nil {
		ctx, cancel := context.WithTimeout(context.Background(), maxRollback)
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
		cancel()
	}
	t.conn.Release()
	t.release()
}

// maxRollback is how long the end of a transaction may take that is not to be.
const maxRollback = 10 * time.Second

var errScan = errors.New("a result can't be read")

// send sends statements together, and reads their results.
func (db *database) send(ctx context.Context, conn *pgx.Conn, begin []string, end string, statements ...relational.Statement) error {
	batch := new(pgx.Batch)
	for _, sql := range begin {
		batch.Queue(sql)
	}
	for _, s := range statements {
		if s.Idle() {
			continue
		}
		args := slices.Clip(s.Args)
		if s.Columns != nil {
			args = append(args, transpose(s.Columns, s.Rows)...)
		}
		query := batch.Queue(db.texts.Render(&db.dialect, s), args...)
		if s.Scan == nil {
			continue
		}
		query.Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := s.Scan(rows); err != nil {
					rows.Close()
					return fmt.Errorf("%w: %w", errScan, err)
				}
			}
			return rows.Err()
		})
	}
	if end != "" {
		batch.Queue(end)
	}
	if batch.Len() == 0 {
		return nil
	}
	err := conn.SendBatch(ctx, batch).Close()
	switch {
	case isCode(err, codeReadOnly): // it is no longer the primary: the next connection may find who is
		_ = conn.Close(ctx)
	case isCode(err, codeStatementEnded) && ctx.Err() == nil:
		return &relational.AwayError{Text: "the database took longer than a statement may: ask for less at a time, or raise statement_timeout in the DSN", Cause: err}
	}
	return err
}

// transpose makes an array of every column.
func transpose(columns []relational.Column, rows [][]any) []any {
	arrays := make([]any, len(columns))
	for i, c := range columns {
		switch c.Type {
		case relational.Text:
			arrays[i] = column[string](rows, i)
		case relational.Int:
			arrays[i] = column[int64](rows, i)
		case relational.Bool:
			arrays[i] = column[bool](rows, i)
		default:
			arrays[i] = column[[]byte](rows, i)
		}
	}
	return arrays
}

// column is an array of the values of a column; of pointers only if some are
// NULL, because they take longer to encode.
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
