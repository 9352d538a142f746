package tkoserver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A Program is a program of the server.
type Program struct {
	Name   string
	About  string   // begins the help; "" for nothing
	Stores []Stores // in addition to SQLite and PostgreSQL
}

// Stores are those of one kind of database, which not all programs have.
type Stores struct {
	Prefix string // of --store
	// Open opens a store, and creates its schema. It must check the setting.
	Open func(ctx context.Context, setting string, o OpenOptions) (record.Store, error)
	// Check returns why Open would fail, and whether it would create or change the schema. It changes nothing.
	Check func(ctx context.Context, setting string) (migrates bool, err error)
}

// OpenOptions are how a store is opened.
type OpenOptions struct {
	Wait time.Duration // for the database to respond
	Log  *slog.Logger
}

// Main runs a program, and returns its exit code.
func Main(p Program) int {
	if code, is := krmfn.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); is {
		return code
	}
	if err := supervise.Hide(); err != nil { // plugins run as the same user, and must not read the server's memory
		_, _ = fmt.Fprintf(os.Stderr, "%s: hide from plugins: %v\n", p.Name, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return p.run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// stores returns the kind of stores that a setting selects; nil if it is SQLite, PostgreSQL, or unknown.
func (p Program) stores(setting string) *Stores {
	for i := range p.Stores {
		if strings.HasPrefix(setting, p.Stores[i].Prefix) {
			return &p.Stores[i]
		}
	}
	return nil
}
