package relational

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Database runs statements. Its methods may be called at the same time.
type Database interface {
	// Begin starts a transaction. One that writes doesn't wait for readers, nor
	// they for it. One that reads sees one snapshot. Lists may wait for other
	// lists, but nothing else does.
	Begin(ctx context.Context, mode Mode) (Tx, error)
	// Run runs one statement that reads, in a snapshot of its own.
	Run(ctx context.Context, s Statement) error
	// Dialect says how its SQL differs.
	Dialect() Dialect
	// Transient says whether a transaction that failed with an error before its
	// commit was sent may work when it is run again.
	Transient(err error) bool
	// Close ends everything.
	Close() error
}

// A Mode is what a transaction is for.
type Mode int

// What transactions are for.
const (
	Read Mode = iota // and be done with it
	List             // read for as long as whoever takes the rows likes
	Write
)

// A Tx is a transaction. It is used by one goroutine, and must be ended.
type Tx interface {
	// Run runs statements in their order, together if the database can.
	Run(ctx context.Context, statements ...Statement) error
	// Commit runs statements and commits. If the transaction's outcome is
	// unknown, the error is an [UnknownOutcomeError].
	Commit(ctx context.Context, statements ...Statement) error
	// Rollback ends the transaction if it isn't committed.
	Rollback()
}

// An UnknownOutcomeError says that the connection was lost while a commit was
// under way: it may have happened or not.
type UnknownOutcomeError struct{ Err error }

func (e *UnknownOutcomeError) Error() string {
	return "the outcome is unknown, read again: the connection was lost during the commit: " + e.Err.Error()
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// A Dialect says how the SQL of a database differs.
type Dialect struct {
	// Now is the expression for the database's time, in microseconds.
	Now string
	// ForUpdate locks the rows that are read, as far as the database needs it.
	ForUpdate string
	// SkipLocked does, and leaves out rows that others have locked.
	SkipLocked string
	// In tests whether an expression is in a list that is a parameter, made by
	// List.
	In func(expression, parameter string) string
	// Among is In for long lists of texts and expressions without an index.
	Among func(expression, parameter string) string
	// List makes a parameter of a list of texts.
	List func([]string) any
	// Ints makes a parameter of a list of numbers.
	Ints func([]int64) any
	// By makes a table of a statement be read by an index, if the database can
	// be told so. May be nil.
	By func(index string) string
	// Lateral says that it has CROSS JOIN LATERAL.
	Lateral bool
	// Regexp tests whether an expression matches a regular expression.
	Regexp func(expression, parameter string) string
	// Rows is a table named r of parameters, whose numbers start at first.
	Rows func(columns []Column, first int) string
	// Notify is run at the end of transactions after which others should look.
	Notify []Statement
}

func (d *Dialect) by(index string) string {
	if d.By == nil || index == "" {
		return ""
	}
	return d.By(index)
}

// A Type is a type of columns.
type Type int

// The types of columns. Times are numbers: microseconds since 1970.
const (
	Text Type = iota
	Int
	Bytes
	Bool
)

// A Column is one of a table of parameters.
type Column struct {
	Name string
	Type Type
}

// A Statement is SQL in the dialect that the databases share: parameters are
// $1, $2…; {rows} stands for a table r of parameters, {now} for the time.
type Statement struct {
	SQL  string
	Args []any
	// Columns and Rows are the table {rows}. Without rows, the statement isn't
	// run. A database may run it once for each row.
	Columns []Column
	Rows    [][]any
	// Scan is called for every row of the result, if not nil.
	Scan func(Row) error
}

// A Row is a row of a result.
type Row interface {
	Scan(dest ...any) error
}

// Idle says that the statement needs not be run.
func (s Statement) Idle() bool { return s.Columns != nil && len(s.Rows) == 0 }

// Render writes the SQL for a dialect.
func (s Statement) Render(d *Dialect) string {
	sql := s.SQL
	if !strings.Contains(sql, "{") {
		return sql
	}
	sql = strings.ReplaceAll(sql, "{now}", d.Now)
	sql = strings.ReplaceAll(sql, "{for update}", d.ForUpdate)
	sql = strings.ReplaceAll(sql, "{skip locked}", d.SkipLocked)
	if s.Columns != nil {
		sql = strings.ReplaceAll(sql, "{rows}", d.Rows(s.Columns, len(s.Args)+1))
	}
	return sql
}

// Texts remembers what statements look like in one dialect. The zero value is
// ready, for any number of goroutines.
type Texts struct {
	mutex sync.RWMutex
	known map[string]knownText
}

type knownText struct {
	args    int
	columns []Column
	text    string
}

// maxTexts is how many texts are remembered: more than there are of those that
// come again.
const maxTexts = 1000

// Render is what Statement.Render answers.
func (t *Texts) Render(d *Dialect, s Statement) string {
	if !strings.Contains(s.SQL, "{") {
		return s.SQL
	}
	t.mutex.RLock()
	known, ok := t.known[s.SQL]
	t.mutex.RUnlock()
	if ok && known.args == len(s.Args) && slices.Equal(known.columns, s.Columns) {
		return known.text
	}
	text := s.Render(d)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.known == nil || len(t.known) >= maxTexts {
		t.known = map[string]knownText{}
	}
	t.known[s.SQL] = knownText{len(s.Args), s.Columns, text}
	return text
}

func parameter(n int) string { return "$" + strconv.Itoa(n) }
