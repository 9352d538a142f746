package sqldb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Database runs statements. It is safe for concurrent use.
type Database interface {
	// Begin starts a transaction. Transactions that write and transactions that
	// read don't wait for each other. One that reads sees one snapshot. Lists may
	// wait for other lists, but no other transaction waits for lists.
	Begin(ctx context.Context, mode Mode) (Tx, error)
	// Run runs one statement that reads, in its own snapshot.
	Run(ctx context.Context, s Statement) error
	// Dialect describes how the SQL of the database differs.
	Dialect() Dialect
	// Transient reports whether a transaction that failed with err before its
	// commit was sent may succeed when it is run again.
	Transient(err error) bool
	// Full reports whether an error means that the database's disk is full.
	Full(err error) bool
	// Close closes all connections. Calls under way fail.
	Close() error
}

// A Mode is the purpose of a transaction.
type Mode int

// The modes of transactions.
const (
	Read Mode = iota // a few statements
	List             // reads for as long as the client takes to read the rows
	Write
)

// A Tx is a transaction. It is used by one goroutine, and must be committed or
// rolled back.
type Tx interface {
	// Run runs statements in their order, in one round trip if the database can.
	Run(ctx context.Context, statements ...Statement) error
	// Commit runs statements and commits. If the transaction's outcome is
	// unknown, the error is an [UnknownOutcomeError].
	Commit(ctx context.Context, statements ...Statement) error
	// Rollback ends the transaction if it isn't committed.
	Rollback()
}

// An UnknownOutcomeError reports that the connection was lost during a commit,
// which may have happened or not.
type UnknownOutcomeError struct{ Err error }

func (e *UnknownOutcomeError) Error() string {
	return "the outcome is unknown, read again: the connection was lost during the commit: " + e.Err.Error()
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// A Dialect describes how the SQL of a database differs.
type Dialect struct {
	// Now is the expression for the database's time, in microseconds since 1970.
	Now string
	// ForUpdate is the clause that locks the rows that are read; "" if the
	// database needs none.
	ForUpdate string
	// SkipLocked is the clause that locks rows and leaves out those that other
	// transactions have locked.
	SkipLocked string
	// In returns the condition that an expression is in a list parameter, which
	// List or Ints encodes.
	In func(expression, parameter string) string
	// Among is In for long lists of texts and expressions without an index.
	Among func(expression, parameter string) string
	// List encodes a list of texts as a parameter.
	List func([]string) any
	// Ints encodes a list of numbers as a parameter.
	Ints func([]int64) any
	// IndexHint returns the clause after a table that makes the database read
	// it by an index. Nil if the database has none.
	IndexHint func(index string) string
	// OriginAlone is true if the index of origins does not have kinds.
	OriginAlone bool
	// IDPrefix is the number of characters of a deployment's ID that the indexes
	// by template, parent and shared metadata contain; 0: all.
	IDPrefix int
	// Lateral is true if the database has CROSS JOIN LATERAL.
	Lateral bool
	// Regexp returns the condition that an expression matches a regular
	// expression parameter.
	Regexp func(expression, parameter string) string
	// Rows returns a table named r of parameters, which are numbered from first.
	Rows func(columns []Column, first int) string
	// Size is the statement that returns the size of the database, in bytes; "" if
	// it can't tell.
	Size string
	// HistorySize is the statement that returns about how many entries the log has, and
	// its size with its indexes in bytes; 0 if the database can't tell.
	HistorySize string
	// Notify is the statement that ends transactions of which other stores are
	// notified, with the text of their [News] as its parameter; "" if the database
	// can't notify.
	Notify string
}

// ByIndex returns the clause after a table that makes the database read it by an index;
// "" if there is none.
func (d *Dialect) ByIndex(index string) string {
	if d.IndexHint == nil || index == "" {
		return ""
	}
	return d.IndexHint(index)
}

// IndexedID returns the part of the ID of a record of the table entity that an index
// contains that has only a prefix, or "" if all indexes have all of it. The indexes
// have the same expression.
func (d *Dialect) IndexedID(table string) string {
	if d.IDPrefix == 0 {
		return ""
	}
	return fmt.Sprintf("(CASE WHEN %[1]s.kind = 'deployment' THEN substr(%[1]s.id, 1, %[2]d) ELSE %[1]s.id END)", table, d.IDPrefix)
}

// OrderByID returns the ORDER BY list that orders the records of an index by ID.
func (d *Dialect) OrderByID(table string, prefixed bool) string {
	if indexed := d.IndexedID(table); prefixed && indexed != "" {
		return indexed + ", " + table + ".id"
	}
	return table + ".id"
}

// Prefixed reports whether the index of a column of the table entity contains only a
// prefix of IDs, if the dialect has one.
func Prefixed(column string) bool {
	return column == "template" || column == "parent" || column == "metaset"
}

// A Type is the type of a column.
type Type int

// The types of columns. Times are numbers: microseconds since 1970.
const (
	Text Type = iota
	Int
	Bytes
	Bool
)

// As returns a column of the type.
func (t Type) As(name string) Column { return Column{name, t} }

// A Column is a column of a table of parameters.
type Column struct {
	Name string
	Type Type
}

// A Statement is SQL in the dialect that the databases share: parameters are
// $1, $2…; {rows} stands for a table r of parameters, {now} for the time.
type Statement struct {
	SQL  string
	Args []any
	// Columns and Rows are the table {rows}. With Columns and no Rows, the
	// statement isn't run. A database may run it once for each row.
	Columns []Column
	Rows    [][]any
	// Scan, if not nil, is called for every row of the result.
	Scan func(Row) error
}

// A Runner runs statements that read, in their order.
type Runner func(ctx context.Context, statements ...Statement) error

// A Row is a row of a result.
type Row interface {
	Scan(dest ...any) error
}

// Idle reports whether the statement need not be run.
func (s Statement) Idle() bool { return s.Columns != nil && len(s.Rows) == 0 }

// Render returns the SQL in a dialect.
func (s Statement) Render(d *Dialect) string {
	sql := s.SQL
	if !strings.Contains(sql, "{") {
		return sql
	}
	sql = strings.ReplaceAll(sql, "{now}", d.Now)
	sql = strings.ReplaceAll(sql, "{for update}", d.ForUpdate)
	kind := "e.kind"
	if d.OriginAlone {
		kind = "(e.kind || '')" // no index of kinds: without statistics, one would be as good as that of origins
	}
	sql = strings.ReplaceAll(sql, "{kind of an origin}", kind)
	sql = strings.ReplaceAll(sql, "{skip locked}", d.SkipLocked)
	if s.Columns != nil {
		sql = strings.ReplaceAll(sql, "{rows}", d.Rows(s.Columns, len(s.Args)+1))
	}
	return sql
}

// A RenderCache caches the SQL of statements in one dialect. The zero value is
// ready, and safe for concurrent use.
type RenderCache struct {
	mutex    sync.RWMutex
	rendered map[string]renderedText
}

type renderedText struct {
	args    int
	columns []Column
	text    string
}

// maxRendered limits the cached texts. It is more than the number of statements
// that occur repeatedly.
const maxRendered = 1000

// Render returns the same as Statement.Render.
func (t *RenderCache) Render(d *Dialect, s Statement) string {
	if !strings.Contains(s.SQL, "{") {
		return s.SQL
	}
	t.mutex.RLock()
	known, ok := t.rendered[s.SQL]
	t.mutex.RUnlock()
	if ok && known.args == len(s.Args) && slices.Equal(known.columns, s.Columns) {
		return known.text
	}
	text := s.Render(d)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.rendered == nil || len(t.rendered) >= maxRendered {
		t.rendered = map[string]renderedText{}
	}
	t.rendered[s.SQL] = renderedText{len(s.Args), s.Columns, text}
	return text
}

// Parameter returns the parameter of a number, from 1.
func Parameter(n int) string { return "$" + strconv.Itoa(n) }

// Collect returns a Scan that appends the only column of each row to a list.
func Collect[T any](list *[]T) func(Row) error {
	return func(from Row) error {
		var value T
		err := from.Scan(&value)
		*list = append(*list, value)
		return err
	}
}

// Count returns a Scan that counts the rows.
func Count(rows *int) func(Row) error {
	return func(Row) error {
		*rows++
		return nil
	}
}

// Found returns a Scan that notes whether there is a row.
func Found(found *bool) func(Row) error {
	return func(Row) error {
		*found = true
		return nil
	}
}
