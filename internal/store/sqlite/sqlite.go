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
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Options configure a store.
type Options struct {
	Readers int          // number of concurrent lists; 8 if zero
	Log     *slog.Logger // discarded if nil
	// Exclusive makes Open return an ErrBusy if another store has opened the file
	// with Exclusive, in this process or another. Servers need it, because each
	// caches data that another would change.
	Exclusive bool
	// Readable allows a file that other users of this machine may read or write. Without
	// it, Open returns an ErrInvalid for one.
	Readable bool

	maxPages int // limit of the file's size; set by tests
}

// errNoLocks is returned if the file system has no locks.
var errNoLocks = errors.New("the file system has no locks")

// lockWait is the time limit of waiting for the lock of a server that is about to
// end.
const lockWait = 2 * time.Second

// waitForLock takes the lock of a file. It waits up to lockWait for another server to
// release it.
func waitForLock(ctx context.Context, path string, log *slog.Logger) (func() error, error) {
	for begun := time.Now(); ; {
		unlock, err := lock(path)
		switch {
		case errors.Is(err, errNoLocks):
			log.WarnContext(ctx, "the store can't be locked: make sure that no other server uses it", "path", path, "err", err)
			return unlock, nil
		case !errors.Is(err, tko.ErrBusy) || time.Since(begun) > lockWait:
			return unlock, err
		}
		if pause.For(ctx, 50*time.Millisecond) != nil {
			return nil, ctx.Err()
		}
	}
}

// quickReaders is the number of connections for short reads.
const quickReaders = 8

// The sizes of the page caches of connections, in KiB. The system caches the file, too:
// larger caches of readers, of which there are many, take memory and save hardly any time.
const (
	writerCache = 16 << 10
	readerCache = 2 << 10
)

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens the store in a file, which it creates if there is none. It migrates a
// file with an older schema, and returns an error for a newer one. When Commit
// returns, the changes are on disk.
func Open(ctx context.Context, path string, options Options) (*relational.Store, error) {
	log := options.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options.Log = log
	unlock := func() error { return nil }
	if options.Exclusive {
		var err error
		if unlock, err = waitForLock(ctx, path, log); err != nil {
			return nil, err
		}
	}
	if err := protect(path, options.Readable); err != nil {
		return nil, errors.Join(err, unlock())
	}
	s, err := open(ctx, path, options, "FULL", "SQLite", unlock)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return s, nil
}

// OpenMemory opens a store that is deleted when it is closed. It is a private
// temporary file, in memory where the system has a folder for that, because SQLite's
// own memory databases have no snapshots. Its positions have gaps, as those of databases
// on several machines do: what is tested on it doesn't count by them.
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
		return nil, fmt.Errorf("create a store in memory: %w", err)
	}
	remove := func() error { return os.RemoveAll(folder) }
	path := filepath.Join(folder, "store.db")
	if err := migrated.create(ctx, path); err != nil {
		return nil, errors.Join(err, remove())
	}
	s, err := open(ctx, path, Options{}, "OFF", "SQLite (in memory)", remove)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	s.LeaveGaps(relational.Gaps)
	return s, nil
}

// An emptyFile is the content of a file after all migrations, before the first record.
type emptyFile struct {
	mutex   sync.Mutex
	content []byte // nil until one was migrated
}

// migrated is the file as which stores in memory begin: migrations take much longer than a
// copy, and tests open thousands of stores.
var migrated emptyFile

// create creates a file with the schema of this version. The first one is migrated, further
// ones are copies of it.
func (e *emptyFile) create(ctx context.Context, path string) (err error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.content != nil {
		return os.WriteFile(path, e.content, 0o600)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", nameOf(path, url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(OFF)"}}))
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	// Closing the only connection moves what is in the log into the file.
	if err := errors.Join(migrate(ctx, db, path), db.Close()); err != nil {
		return err
	}
	e.content, err = os.ReadFile(path) //nolint:gosec // the store's own file
	return err
}

// nameOf returns the data source name of a file.
func nameOf(path string, query url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}).String()
}

func open(ctx context.Context, path string, options Options, synchronous, name string, closed func() error) (*relational.Store, error) {
	readers := options.Readers
	if readers <= 0 {
		readers = 8
	}
	register()
	db := &database{log: options.Log, cleanup: closed, ended: make(chan struct{}), lists: newPool(readers), quick: newPool(quickReaders), writer: newPool(1)}
	query := url.Values{"_pragma": {
		"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(" + synchronous + ")", fmt.Sprintf("cache_size(-%d)", writerCache),
		"temp_store(MEMORY)", "journal_size_limit(67108864)", "wal_autocheckpoint(4000)",
	}}
	if options.maxPages > 0 {
		query.Add("_pragma", fmt.Sprintf("max_page_count(%d)", options.maxPages))
	}
	var err error
	if db.sql, err = sql.Open("sqlite", nameOf(path, query)); err != nil {
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
	if err := forgetStatistics(ctx, db.sql); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if db.log != nil {
		var err error
		if db.file, err = statFile(path); err != nil {
			return nil, err
		}
	}
	var version string
	if err := db.sql.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	for i := range 1 + quickReaders + readers {
		c := &connection{reads: i > 0, prepared: map[string]*sql.Stmt{}}
		// The file of others may be replaced later, so all connections are opened now.
		if db.log != nil || !c.reads {
			if err := c.open(ctx, db.sql); err != nil {
				return nil, fmt.Errorf("open %s: %w", path, err)
			}
		}
		switch {
		case !c.reads:
			db.writer.put(c)
		case i <= quickReaders:
			db.quick.put(c)
		default:
			db.lists.put(c)
		}
	}
	return relational.New(ctx, db, name+" "+version), nil
}

func readSchema(ctx context.Context, db *sql.DB) (relational.Schema, error) {
	return relational.ReadSchema(ctx, db, func(table string) (there bool, err error) {
		err = db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = $1", table).Scan(&there)
		return there, err
	})
}

// Check returns an error if Open can't use or create the file, and whether it would migrate
// it. Nothing is changed; a server may use the file meanwhile.
func Check(ctx context.Context, path string) (migrates bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		probe, err := os.CreateTemp(filepath.Dir(path), ".tko-check-")
		if err != nil {
			return false, tko.Errorf(tko.ErrInvalid, "the store %s doesn't exist and can't be created: %w", path, err)
		}
		return true, errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	db, err := sql.Open("sqlite", nameOf(path, url.Values{"mode": {"ro"}}))
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	schema, err := readSchema(ctx, db)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	newest, err := relational.Newest(migrations)
	if err != nil {
		return false, err
	}
	return schema.Check("the store "+path, newest)
}

// migrate migrates the schema to this version. Another process may migrate it at the
// same time.
func migrate(ctx context.Context, db *sql.DB, path string) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, relational.RewrittenFS{FS: files, Rewrite: inOneCall}, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	sources := provider.ListSources()
	versions := make([]int64, len(sources))
	for i, source := range sources {
		versions[i] = source.Version
	}
	for attempt := 0; ; attempt++ {
		schema, err := readSchema(ctx, db)
		if err == nil {
			needed, unusable := schema.Check("the store "+path, versions[len(versions)-1])
			if unusable != nil || !needed {
				return unusable
			}
			err = schema.Rejoin(ctx, db, versions)
		}
		if err == nil {
			_, err = provider.Up(ctx)
		}
		if err == nil {
			err = relational.SaveCompatible(ctx, db)
		}
		if err == nil {
			return nil
		}
		if failure, ok := errors.AsType[*sqlite.Error](err); attempt == 20 || ctx.Err() != nil ||
			ok && failure.Code()&0xff != sqlite3.SQLITE_BUSY && failure.Code()&0xff != sqlite3.SQLITE_ERROR {
			return fmt.Errorf("migrate %s: %w", path, err)
		}
		_ = pause.For(ctx, 50*time.Millisecond) // another process may be migrating
	}
}

// forgetStatistics removes the statistics that another program has collected with ANALYZE. Without
// any, plans depend on the schema alone; with them, on the sizes that the tables had at that time.
func forgetStatistics(ctx context.Context, db *sql.DB) error {
	for _, table := range []string{"sqlite_stat1", "sqlite_stat4"} {
		var there int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = $1", table).Scan(&there)
		if err == nil && there > 0 {
			_, err = db.ExecContext(ctx, "DROP TABLE "+table)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOneCall makes a migration one call of SQLite: each call parses the schema again that the
// one before has changed.
func inOneCall(migration string) string {
	const up = "-- +goose Up\n"
	return strings.Replace(migration, up, up+"-- +goose StatementBegin\n", 1) + "-- +goose StatementEnd\n"
}

// clockAhead is the offset by which tests have moved the clock, in nanoseconds.
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

// maxCompiled is the number of cached regular expressions.
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
	sql     *sql.DB
	writer  *pool      // for transactions that write
	lists   *pool      // for lists
	quick   *pool      // for all other reads: held for a short time
	file    *storeFile // nil if the database is private
	log     *slog.Logger
	cleanup func() error
	ended   chan struct{}

	mutex    sync.Mutex
	isClosed bool
}

// A pool has the connections of one purpose that are not in use.
type pool struct {
	free chan struct{} // one for each of them

	mutex sync.Mutex
	stack []*connection
}

func newPool(size int) *pool { return &pool{free: make(chan struct{}, size)} }

func (p *pool) put(c *connection) {
	p.mutex.Lock()
	p.stack = append(p.stack, c)
	p.mutex.Unlock()
	p.free <- struct{}{}
}

// last removes the connection that was used last, once the caller has received from free: it is
// open, and has prepared the most statements.
func (p *pool) last() *connection {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	c := p.stack[len(p.stack)-1]
	p.stack = p.stack[:len(p.stack)-1]
	return c
}

// A connection is a connection with its prepared statements.
type connection struct {
	conn     *sql.Conn // nil until it is needed
	reads    bool      // and never writes
	prepared map[string]*sql.Stmt
}

// open connects to the database, if that wasn't done before.
func (c *connection) open(ctx context.Context, db *sql.DB) error {
	if c.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if c.reads {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA query_only = 1; PRAGMA cache_size = -%d", readerCache)); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	c.conn = conn
	return nil
}

// maxPrepared is the number of prepared statements that a connection caches.
const maxPrepared = 200

func (db *database) Dialect() sqldb.Dialect {
	return sqldb.Dialect{
		Now:         "tko_now()",
		HistorySize: "SELECT count(*), 0 FROM change",
		Size:        "SELECT page_count * page_size FROM pragma_page_count() CROSS JOIN pragma_page_size()",
		In:          inJSONList,
		Among:       inJSONList,
		IndexHint:   func(index string) string { return " INDEXED BY " + index },
		List:        func(list []string) any { return jsonList(list) },
		Ints:        func(list []int64) any { return jsonList(list) },
		Regexp:      func(expression, parameter string) string { return expression + " REGEXP " + parameter },
		Rows: func(columns []sqldb.Column, first int) string {
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

func inJSONList(expression, parameter string) string {
	return expression + " IN (SELECT value FROM json_each(" + parameter + "))"
}

func jsonList(list any) string {
	doc, err := json.Marshal(list)
	if err != nil { // impossible for strings and numbers
		return "[]"
	}
	return string(doc)
}

// Transient returns true for errors caused by another process that uses the file, by
// a disk that is full or fails, and by the late interruption of an earlier caller of
// the connection.
func (db *database) Transient(err error) bool {
	var failure *sqlite.Error
	if !errors.As(err, &failure) {
		return false
	}
	code := failure.Code() & 0xff
	return slices.Contains(transient, code)
}

// Full reports whether the disk is full, or the file has its maximum size.
func (db *database) Full(err error) bool {
	var failure *sqlite.Error
	return errors.As(err, &failure) && failure.Code()&0xff == sqlite3.SQLITE_FULL
}

// Connections implements relational.Connections.
func (db *database) Connections() (used, idle, limit int) {
	limit = cap(db.writer.free) + cap(db.quick.free) + cap(db.lists.free)
	idle = len(db.writer.free) + len(db.quick.free) + len(db.lists.free)
	return limit - idle, idle, limit
}

var transient = []int{
	sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT,
	sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
}

func (db *database) Close() error {
	db.mutex.Lock()
	if db.isClosed {
		db.mutex.Unlock()
		return nil
	}
	db.isClosed = true
	close(db.ended)
	db.mutex.Unlock()
	for { // transactions under way close their own connections
		select {
		case <-db.lists.free:
			db.release(db.lists.last(), db.lists)
		case <-db.quick.free:
			db.release(db.quick.last(), db.quick)
		case <-db.writer.free:
			db.release(db.writer.last(), db.writer)
		default:
			return errors.Join(db.sql.Close(), db.cleanup())
		}
	}
}

// release returns a connection to its pool, or closes it if the database is closed.
func (db *database) release(c *connection, home *pool) {
	db.mutex.Lock()
	defer db.mutex.Unlock()
	if db.isClosed {
		for _, stmt := range c.prepared { // SQLite retains the files of a connection with statements
			_ = stmt.Close()
		}
		if c.conn != nil {
			_ = c.conn.Close() // no caller is left to receive the error
		}
		return
	}
	home.put(c)
}

func (db *database) hasEnded() bool {
	db.mutex.Lock()
	defer db.mutex.Unlock()
	return db.isClosed
}

var errClosed = errors.New("the store is closed")

// take waits for a connection of a pool.
func (db *database) take(ctx context.Context, home *pool) (*connection, error) {
	if db.hasEnded() {
		return nil, errClosed
	}
	select {
	case <-home.free:
		c := home.last()
		if err := c.open(ctx, db.sql); err != nil {
			db.release(c, home)
			return nil, err
		}
		return c, nil
	case <-db.ended:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (db *database) Begin(ctx context.Context, mode sqldb.Mode) (sqldb.Tx, error) {
	home, begin := db.quick, "BEGIN"
	switch mode {
	case sqldb.Read:
	case sqldb.List:
		home = db.lists
	case sqldb.Write:
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
		c.rollback() //nolint:contextcheck // it may have begun although its context ended
		db.release(c, home)
		return nil, err
	}
	return &transaction{connection: c, db: db, home: home}, nil
}

func (db *database) Run(ctx context.Context, s sqldb.Statement) error {
	c, err := db.take(ctx, db.quick)
	if err != nil {
		return err
	}
	defer db.release(c, db.quick)
	return c.run(ctx, dialect, s)
}

var (
	dialect = (&database{}).Dialect()
	texts   sqldb.RenderCache
)

type transaction struct {
	*connection
	db    *database
	home  *pool
	ended bool
}

func (t *transaction) Run(ctx context.Context, statements ...sqldb.Statement) error {
	for _, s := range statements {
		if err := t.run(ctx, dialect, s); err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) Commit(ctx context.Context, statements ...sqldb.Statement) error {
	if err := t.Run(ctx, statements...); err != nil {
		return err
	}
	if err := t.exec(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		return err
	}
	t.ended = true
	t.db.release(t.connection, t.home)
	return nil
}

func (t *transaction) Rollback() {
	if t.ended {
		return
	}
	t.ended = true
	t.rollback()
	t.db.release(t.connection, t.home)
}

// rollback ends a transaction. If SQLite has ended it already, the statement fails,
// which is fine. But a late interruption of the statement before may interrupt this
// one, too.
func (c *connection) rollback() {
	for range 100 {
		var failure *sqlite.Error
		if err := c.exec(context.Background(), "ROLLBACK"); !errors.As(err, &failure) || failure.Code()&0xff != sqlite3.SQLITE_INTERRUPT {
			return
		}
	}
}

func (c *connection) exec(ctx context.Context, text string) error {
	stmt, err := c.prepare(ctx, text) //nolint:sqlclosecheck // cached in c.prepared
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
func (c *connection) run(ctx context.Context, d sqldb.Dialect, s sqldb.Statement) error {
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

func run(ctx context.Context, stmt *sql.Stmt, scan func(sqldb.Row) error, args []any) error {
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
