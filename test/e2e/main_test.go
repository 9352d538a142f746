package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 3 * time.Minute

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// stores are the stores that tests here run on, by name. With SPANNER_EMULATOR_HOST, it is a database there, which the server creates
// (make spanner).
var stores = func() map[string]func(t *testing.T) string {
	if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
		return map[string]func(t *testing.T) string{"Spanner": spannerDatabase}
	}
	return map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "tko.db") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.DSN(t) },
	}
}()

// anyStore returns a store for tests to which it doesn't matter which one.
func anyStore(t *testing.T) string {
	t.Helper()
	if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
		return spannerDatabase(t)
	}
	return stores["SQLite"](t)
}

var spannerDatabases atomic.Int64

func spannerDatabase(*testing.T) string {
	return fmt.Sprintf("spanner:projects/test/instances/test/databases/e2e-%d", spannerDatabases.Add(1))
}

// dial connects a client that retries until its server is available.
func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true, Author: tko.Author{Who: "test", Why: t.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	t.Cleanup(cancel)
	return ctx
}

// freeAddress returns an address for a server that is restarted.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
