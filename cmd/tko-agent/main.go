// Command tko-agent is the agent of a site: it is connected to a server of TKO, or applies bundles
// at a site that never is, and writes reports of what became of them. See package internal/agent.
// This package connects it to the target for clusters.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// Exit codes, as those of tko.
const (
	exitOther    = 1
	exitUsage    = 2
	exitNotFound = 3
	exitConflict = 4
	exitDenied   = 6
	exitPartly   = 9
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// run runs the command with args, without the program's name, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	root := rootCommand(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})), level) //nolint:contextcheck // commands get the context when they run
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "tko-agent: "+printable.Text(err.Error()))
	return exitCode(err)
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errPartly):
		return exitPartly
	case errors.Is(err, tko.ErrDenied):
		return exitDenied
	case errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrBusy):
		return exitConflict
	case errors.Is(err, tko.ErrNotFound):
		return exitNotFound
	case errors.Is(err, tko.ErrInvalid):
		return exitUsage
	}
	return exitOther
}

// A usageError is an error in arguments or flags.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func exactly(n int) cobra.PositionalArgs { return usage(cobra.ExactArgs(n)) }

func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
		}
		return nil
	}
}
