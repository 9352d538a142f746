package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// Options are what may be said when a store is opened.
type Options struct {
	Readers int          // how many lists go on at the same time; 8 if zero
	Log     *slog.Logger // where to report; nowhere if nil
	// Exclusive refuses a file that another store has opened so, in this process
	// or another: an ErrBusy. Servers must be alone, because each keeps in memory
	// what the others would change.
	Exclusive bool

	maxPages int // of the file: tests fill it
}

// errNoLocks says that the file system has no locks.
var errNoLocks = errors.New("files can't be locked there")

// lockPatience is how long a file may still be locked by a server that is about
// to end.
const lockPatience = 2 * time.Second

// lockSoon takes the lock of a file, which another server may be about to give
// up.
func lockSoon(ctx context.Context, path string, log *slog.Logger) (func() error, error) {
	for begun := time.Now(); ; {
		unlock, err := lock(path)
		switch {
		case errors.Is(err, errNoLocks):
			log.WarnContext(ctx, "the store can't be locked: make sure that no other server uses it", "path", path, "err", err)
			return unlock, nil
		case !errors.Is(err, tko.ErrBusy) || time.Since(begun) > lockPatience:
			return unlock, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// quick is how many connections read what is quickly done.
const quick = 8

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens the store in a file, which is made if there is none. A file of an
// older schema is migrated, one of a newer schema refused. Changes are on the
// disk when Commit answers.
func Open(ctx context.Context, path string, options Options) (*relational.Store, error) {
	log := options.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options.Log = log
	unlock := func() error { return nil }
	if options.Exclusive {
		var err error
		if unlock, err = lockSoon(ctx, path, log); err != nil {
			return nil, err
		}
	}
	s, err := open(ctx, path, options, "FULL", "SQLite", unlock)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return s, nil
}

// OpenMemory opens a store that goes when it is closed. It is a private
// temporary file, in memory where the system has such files, because SQLite's
// own memory databases know no snapshots.
func OpenMemory(ctx context.Context) (*relational.Store, error) {
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	folder, err := os.MkdirTemp(parent, "tko-memory-")
	if err != nil && parent != "" {
		folder, err = os.MkdirTemp("", "tko-memory-")
	}
	if err != nil {
		return nil, fmt.Errorf("make room for a store in memory: %w", err)
	}
	remove := func() error { return os.RemoveAll(folder) }
	s, err := open(ctx, filepath.Join(folder, "store.db"), Options{}, "OFF", "SQLite (in memory)", remove)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return s, nil
}

func open(ctx context.Context, path string, options Options, synchronous, name string, closed func() error) (*relational.Store, error) {
	readers := options.Readers
	if readers <= 0 {
		readers = 8
	}
	register()
	db := &database{log: options.Log, closed: closed, ended: make(chan struct{}), free: make(chan *connection, readers), quick: make(chan *connection, quick), writer: make(chan *connection, 1)}
	query := url.Values{"_pragma": {
		"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(" + synchronous + ")", "cache_size(-16384)",
		"temp_store(MEMORY)", "journal_size_limit(67108864)", "wal_autocheckpoint(4000)",
	}}
	if options.maxPages > 0 {
		query.Add("_pragma", fmt.Sprintf("max_page_count(%d)", options.maxPages))
	}
	dsn := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()
	var err error
	if db.sql, err = sql.Open("sqlite", dsn); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s, err := db.start(ctx, path, readers, name)
	if err != nil {
		return nil, errors.Join(err, db.sql.Close())
	}
	return s, nil
}

func (db *database) start(ctx context.Context, path string, readers int, name string) (*relational.Store, error) {
	if err := migrate(ctx, db.sql, path); err != nil {
		return nil, err
	}
	if db.log != nil {
		var err error
		if db.place, err = placeOf(path); err != nil {
			return nil, err
		}
	}
	var version string
	if err := db.sql.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	for i := range 1 + quick + readers {
		conn, err := db.sql.Conn(ctx)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		c := &connection{conn: conn, prepared: map[string]*sql.Stmt{}}
		if i == 0 {
			db.writer <- c
			continue
		}
		if _, err := conn.ExecContext(ctx, "PRAGMA query_only = 1"); err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		if i <= quick {
			db.quick <- c
			continue
		}
		db.free <- c
	}
	return relational.New(ctx, db, name+" "+version), nil
}

// migrate brings the schema to this version. Another process may be doing the
// same.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	sources := provider.ListSources()
	newest := sources[len(sources)-1].Version
	for attempt := 0; ; attempt++ {
		current, err := provider.GetDBVersion(ctx)
		switch {
		case err == nil && current > newest:
			return fmt.Errorf("the store %s has the schema %d of a newer TKO, this one knows %d: use the newer TKO", path, current, newest)
		case err == nil && current == newest:
			return nil
		case err == nil:
			_, err = provider.Up(ctx)
		}
		if err == nil {
			return nil
		}
		if failure, ok := errors.AsType[*sqlite.Error](err); attempt == 20 || ctx.Err() != nil ||
			ok && failure.Code()&0xff != sqlite3.SQLITE_BUSY && failure.Code()&0xff != sqlite3.SQLITE_ERROR {
			return fmt.Errorf("migrate %s: %w", path, err)
		}
		select { // another process is at it
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// clockAhead moves the clock in tests, in nanoseconds.
var clockAhead atomic.Int64

var register = sync.OnceFunc(func() {
	sqlite.MustRegisterDeterministicScalarFunction("regexp", 2, matches)
	sqlite.MustRegisterScalarFunction("tko_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return time.Now().Add(time.Duration(clockAhead.Load())).UnixMicro(), nil
	})
})

var (
	compiledMutex sync.Mutex
	compiled      = map[string]*regexp.Regexp{}
)

// maxCompiled is how many regular expressions are kept.
const maxCompiled = 256

func matches(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	pattern, _ := args[0].(string)
	text, ok := args[1].(string)
	if !ok {
		return int64(0), nil
	}
	compiledMutex.Lock()
	re := compiled[pattern]
	if re == nil {
		var err error
		if re, err = regexp.Compile(pattern); err != nil {
			compiledMutex.Unlock()
			return nil, err
		}
		if len(compiled) >= maxCompiled {
			clear(compiled)
		}
		compiled[pattern] = re
	}
	compiledMutex.Unlock()
	if re.MatchString(text) {
		return int64(1), nil
	}
	return int64(0), nil
}

// A database is a file with its connections.
type database struct {
	sql    *sql.DB
	writer chan *connection // the one that writes
	free   chan *connection // those that list
	quick  chan *connection // those that read otherwise: never held for long
	place  *place           // nil if it is private
	log    *slog.Logger
	closed func() error
	ended  chan struct{}

	mutex sync.Mutex
	over  bool
}

// A connection is one of the file's, with its prepared statements.
type connection struct {
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

// maxPrepared is how many statements a connection keeps.
const maxPrepared = 200

func (db *database) Dialect() relational.Dialect {
	return relational.Dialect{
		Now:       "tko_now()",
		In:        inDocument,
		Among:     inDocument,
		IndexHint: func(index string) string { return " INDEXED BY " + index },
		List:      func(list []string) any { return document(list) },
		Ints:      func(list []int64) any { return document(list) },
		Regexp:    func(expression, parameter string) string { return expression + " REGEXP " + parameter },
		Rows: func(columns []relational.Column, first int) string {
			var b strings.Builder
			for i, c := range columns {
				if i > 0 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "$%d AS %s", first+i, c.Name)
			}
			return "(SELECT " + b.String() + ") AS r"
		},
	}
}

func inDocument(expression, parameter string) string {
	return expression + " IN (SELECT value FROM json_each(" + parameter + "))"
}

func document(list any) string {
	doc, err := json.Marshal(list)
	if err != nil { // can't be: strings and numbers
		return "[]"
	}
	return string(doc)
}

// Transient errors are those of another process at work on the file, of a disk
// that is full or fails, and of the interruption of a caller who was here before,
// and whose driver was late.
func (db *database) Transient(err error) bool {
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return false
	}
	code := failure.Code() & 0xff
	return slices.Contains(transient, code)
}

var transient = []int{
	sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT,
	sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
}

func (db *database) Close() error {
	db.mutex.Lock()
	if db.over {
		db.mutex.Unlock()
		return nil
	}
	db.over = true
	close(db.ended)
	db.mutex.Unlock()
	for { // those under way close their connections themselves
		select {
		case c := <-db.free:
			db.release(c, db.free)
		case c := <-db.quick:
			db.release(c, db.quick)
		case c := <-db.writer:
			db.release(c, db.writer)
		default:
			return errors.Join(db.sql.Close(), db.closed())
		}
	}
}

// release gives a connection back to where it belongs.
func (db *database) release(c *connection, home chan *connection) {
	db.mutex.Lock()
	defer db.mutex.Unlock()
	if db.over {
		_ = c.conn.Close() // nobody is left to tell
		return
	}
	home <- c
}

func (db *database) isOver() bool {
	db.mutex.Lock()
	defer db.mutex.Unlock()
	return db.over
}

var errClosed = errors.New("the store is closed")

// take waits for a connection.
func (db *database) take(ctx context.Context, home chan *connection) (*connection, error) {
	if db.isOver() {
		return nil, errClosed
	}
	select {
	case c := <-home:
		return c, nil
	case <-db.ended:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (db *database) Begin(ctx context.Context, mode relational.Mode) (relational.Tx, error) {
	home, begin := db.quick, "BEGIN"
	switch mode {
	case relational.Read:
	case relational.List:
		home = db.free
	case relational.Write:
		home, begin = db.writer, "BEGIN IMMEDIATE"
		if err := db.check(ctx); err != nil {
			return nil, err
		}
	}
	c, err := db.take(ctx, home)
	if err != nil {
		return nil, err
	}
	if err := c.exec(ctx, begin); err != nil {
		c.rollback() //nolint:contextcheck // it may have begun all the same, when its caller went
		db.release(c, home)
		return nil, err
	}
	return &transaction{connection: c, db: db, home: home}, nil
}

func (db *database) Run(ctx context.Context, s relational.Statement) error {
	c, err := db.take(ctx, db.quick)
	if err != nil {
		return err
	}
	defer db.release(c, db.quick)
	return c.run(ctx, dialect, s)
}

var (
	dialect = (&database{}).Dialect()
	texts   relational.RenderCache
)

type transaction struct {
	*connection
	db   *database
	home chan *connection
	over bool
}

func (t *transaction) Run(ctx context.Context, statements ...relational.Statement) error {
	for _, s := range statements {
		if err := t.run(ctx, dialect, s); err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) Commit(ctx context.Context, statements ...relational.Statement) error {
	if err := t.Run(ctx, statements...); err != nil {
		return err
	}
	if err := t.exec(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		return err
	}
	t.over = true
	t.db.release(t.connection, t.home)
	return nil
}

func (t *transaction) Rollback() {
	if t.over {
		return
	}
	t.over = true
	t.rollback()
	t.db.release(t.connection, t.home)
}

// rollback ends a transaction. Without one, because SQLite ended it itself, it
// fails: all is well. But whoever interrupted the statement before may
// interrupt this one, too.
func (c *connection) rollback() {
	for range 100 {
		var failure *sqlite.Error
		if err := c.exec(context.Background(), "ROLLBACK"); !errors.As(err, &failure) || failure.Code()&0xff != sqlite3.SQLITE_INTERRUPT {
			return
		}
	}
}

func (c *connection) exec(ctx context.Context, text string) error {
	stmt, err := c.prepare(ctx, text) //nolint:sqlclosecheck // is kept
	if err != nil {
		return err
	}
	_, err = stmt.ExecContext(ctx)
	return err
}

func (c *connection) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := c.prepared[text]; stmt != nil {
		return stmt, nil
	}
	if len(c.prepared) >= maxPrepared {
		for text, stmt := range c.prepared {
			delete(c.prepared, text)
			if err := stmt.Close(); err != nil {
				return nil, err
			}
		}
	}
	stmt, err := c.conn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	c.prepared[text] = stmt
	return stmt, nil
}

// run runs a statement, once for each of its rows.
func (c *connection) run(ctx context.Context, d relational.Dialect, s relational.Statement) error {
	if s.Idle() {
		return nil
	}
	stmt, err := c.prepare(ctx, texts.Render(&d, s))
	if err != nil {
		return err
	}
	if s.Columns == nil {
		return run(ctx, stmt, s.Scan, s.Args)
	}
	for _, row := range s.Rows {
		if err := run(ctx, stmt, s.Scan, append(slices.Clip(s.Args), row...)); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, stmt *sql.Stmt, scan func(relational.Row) error, args []any) error {
	if scan == nil {
		_, err := stmt.ExecContext(ctx, args...)
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
