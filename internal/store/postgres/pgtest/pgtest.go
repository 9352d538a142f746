// Package pgtest provides tests with databases of a real PostgreSQL. It uses the server
// that TKO_TEST_POSTGRES names (the DSN of a user who may create databases), or starts
// one per test process. That one is fast rather than durable (see [fast]); tests of
// crashes have a server of their own, with default durability ([NewCluster]).
package pgtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Environment is the name of the variable with the DSN of a server to use.
const Environment = "TKO_TEST_POSTGRES"

// Binaries is the name of the variable with the folder of PostgreSQL's programs, if not
// the installed ones.
const Binaries = "TKO_TEST_POSTGRES_BIN"

// DSN returns the DSN of a new database with the current schema. It is removed when the
// test ends.
func DSN(t testing.TB) string {
	t.Helper()
	s := running(t)
	how := "TEMPLATE " + s.template
	if s.own { // a checkpoint and copies of files: fast where nothing is flushed to disk
		how += " STRATEGY file_copy"
	}
	return s.create(t, how)
}

// EmptyDSN returns the DSN of a new, empty database. It is removed when the test ends.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return running(t).create(t, "")
}

// Main runs tests and then stops the server, if one was started: for TestMain. If a test
// process is killed or ends without Main, its server ends shortly afterwards.
func Main(m *testing.M) int {
	code := m.Run()
	if s, err := started(); err == nil && s != nil {
		s.stop()
	}
	return code
}

// A server is the server on which databases are created.
type server struct {
	dsn      string
	template string
	stop     func()
	own      bool // started here

	mutex sync.Mutex // a template can be copied by one connection at a time
}

var (
	once    sync.Once
	wanted  atomic.Bool
	theOne  *server
	failure error
)

func running(t testing.TB) *server {
	t.Helper()
	wanted.Store(true)
	once.Do(func() { theOne, failure = start(fast...) })
	if failure != nil {
		t.Fatal(failure)
	}
	return theOne
}

func started() (*server, error) {
	if !wanted.Load() {
		return nil, nil //nolint:nilnil // none was wanted
	}
	once.Do(func() {})
	return theOne, failure
}

// fast are the settings of the server that tests share. Its data ends with the test process, and no test crashes it:
// nothing has to reach the disk. Without them the creation of a database takes ten times as long, of which a package
// of tests has hundreds. Vacuuming all of these databases in turn would be most of the server's work.
var fast = []string{"fsync=off", "full_page_writes=off", "autovacuum=off", "max_wal_size=128MB"}

// memory returns a folder in memory with space for the server that tests share; "" if there is none. Disks take long to
// create the files of a database, and longest after many were removed.
func memory() string {
	const folder, needed = "/dev/shm", 4 << 30
	var system syscall.Statfs_t
	if err := syscall.Statfs(folder, &system); err != nil || system.Bavail*uint64(system.Bsize) < needed { //nolint:gosec // positive
		return ""
	}
	return folder
}

func start(settings ...string) (*server, error) {
	s := &server{dsn: os.Getenv(Environment), stop: func() {}}
	if s.dsn == "" {
		if err := s.launch(settings); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("prepare PostgreSQL for tests: %w", err)
	}
	return s, nil
}

// prepare creates the template database.
func (s *server) prepare(ctx context.Context) error {
	s.template = fmt.Sprintf("tko_template_%d_%d", os.Getpid(), time.Now().UnixNano())
	if err := s.exec(ctx, "CREATE DATABASE "+s.template+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return err
	}
	stop := s.stop
	s.stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = s.exec(ctx, "DROP DATABASE IF EXISTS "+s.template) // our own server is removed anyway
		stop()
	}
	store, err := postgres.Open(ctx, s.database(s.template), postgres.Options{Connections: 2})
	if err != nil {
		return err
	}
	return store.Close()
}

func (s *server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // it is no longer used
	_, err = conn.Exec(ctx, sql)
	return err
}

var number atomic.Int64

func (s *server) create(t testing.TB, how string) string {
	t.Helper()
	name := fmt.Sprintf("tko_test_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), number.Add(1))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	// The template is busy for a moment after its last connection is closed.
	eventually.NoError(t, "the creation of a database for the test", func() error {
		return s.exec(t.Context(), "CREATE DATABASE "+name+" "+how)
	})
	t.Cleanup(func() {
		if err := s.exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return s.database(name)
}

// database returns the DSN of another database of the server.
func (s *server) database(name string) string {
	if u, err := url.Parse(s.dsn); err == nil && u.Scheme != "" {
		u.Path = "/" + name
		return u.String()
	}
	return s.dsn + " dbname=" + name
}

// launch starts our own server.
func (s *server) launch(settings []string) error {
	parent := ""
	if len(settings) > 0 {
		parent = memory()
	}
	c, err := newCluster(parent)
	if err != nil {
		return err
	}
	c.settings = settings
	s.own, s.dsn = true, c.dsn()
	s.stop = sync.OnceFunc(c.remove)
	return c.start()
}

// find returns the folder of PostgreSQL's server programs.
func find() (string, error) {
	folders := []string{}
	if folder := os.Getenv(Binaries); folder != "" {
		if executable(filepath.Join(folder, "postgres")) && executable(filepath.Join(folder, "initdb")) {
			return folder, nil
		}
		return "", fmt.Errorf("%s=%s: there are no postgres and initdb", Binaries, folder)
	}
	for _, name := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(name); err == nil {
			if path, err = filepath.EvalSymlinks(path); err == nil {
				folders = append(folders, filepath.Dir(path))
			}
		}
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(versions)
	for _, folder := range append(folders, versions...) {
		if executable(filepath.Join(folder, "postgres")) && executable(filepath.Join(folder, "initdb")) {
			return folder, nil
		}
	}
	return "", errors.New("PostgreSQL is needed: install it (Debian: apt-get install postgresql) or set " + Environment + " to the DSN of a server")
}

func executable(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // the developer sets the path
	return err == nil && info.Mode()&0o111 != 0
}

// ordinary returns the attributes of a process of an ordinary user, who then owns the
// folder: PostgreSQL refuses to run as root.
func ordinary(folder string) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is sent to the test only, whose end stops the server
	if os.Getuid() != 0 {
		return attributes, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil { // plain-words: ok, the name of an account
			return nil, fmt.Errorf("PostgreSQL can't run as root: %w", err)
		}
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attributes, os.Chown(folder, int(uid), int(gid))
}

// addressVariable names the address on which servers listen, in place of IPv4's
// loopback, for tests of IPv6.
const addressVariable = "TKO_TEST_POSTGRES_ADDRESS"

func address() string { return cmp.Or(os.Getenv(addressVariable), "127.0.0.1") }

// freePort returns a port that no outgoing connection gets while the server is stopped:
// those have ports from 32768 on.
func freePort() (int, error) {
	for range 100 {
		listener, err := net.Listen("tcp", net.JoinHostPort(address(), strconv.Itoa(16_000+rand.IntN(16_000)))) //nolint:noctx,gosec // at once; not a secret
		if err != nil {
			continue
		}
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return 0, errors.New("no port")
		}
		return address.Port, listener.Close()
	}
	return anyPort()
}

func anyPort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address(), "0")) //nolint:noctx // at once
	if err != nil {
		return 0, err
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("no port")
	}
	return address.Port, listener.Close()
}

// Start starts a server outside of tests, such as for benchmarks. It returns the DSN of
// a new, empty database, and a function that stops the server, which has default
// durability.
func Start(ctx context.Context) (dsn string, stop func(), err error) {
	wanted.Store(true)
	once.Do(func() { theOne, failure = start() })
	if failure != nil {
		return "", nil, failure
	}
	dsn, drop, err := Database(ctx)
	if err != nil {
		theOne.stop()
		return "", nil, err
	}
	return dsn, func() {
		if !theOne.own { // otherwise it is removed with the server
			drop()
		}
		theOne.stop()
	}, nil
}

// Database creates another empty database on the server that Start started. It returns
// its DSN, and a function that drops it.
func Database(ctx context.Context) (dsn string, drop func(), err error) {
	s, err := started()
	if err != nil || s == nil {
		return "", nil, errors.Join(err, errors.New("no PostgreSQL was started"))
	}
	name := fmt.Sprintf("tko_bench_%d_%d", time.Now().UnixNano(), number.Add(1))
	if err := s.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return "", nil, err
	}
	return s.database(name), func() {
		_ = s.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") // if this fails, the database stays
	}, nil
}
