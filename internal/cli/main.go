package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// Streams are the input and outputs of a command.
type Streams struct {
	In  io.Reader
	Out io.Writer // results
	Err io.Writer // errors and notices
}

// Exit codes of the command.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitDenied      = 6
	exitChanges     = 7
	exitIncomplete  = 9
	exitInterrupted = 130
)

// Main runs the command with args (without the program's name) and returns its
// exit code. When ctx ends, so does the command. Settings also come from
// environment variables: TKO_ and the flag's name. The planner computes what
// "tko gitops plan" prints. Main may be called any number of times, also
// concurrently.
func Main(ctx context.Context, args []string, streams Streams, planner Planner) int {
	a := newApp(streams, dial)
	a.planner = planner
	return a.main(ctx, args)
}

// An app is one run of the command.
type app struct {
	streams  Streams
	out      *bufio.Writer
	dial     dialer
	planner  Planner
	now      func() time.Time
	globals  globals
	log      *slog.Logger
	closers  []io.Closer
	terminal bool // results go to a terminal
	columns  int  // width of the terminal

	interactive bool // a user at a terminal can confirm
	progress    bool // progress is drawn on a terminal
}

func newApp(streams Streams, d dialer) *app {
	a := &app{
		streams: streams,
		out:     bufio.NewWriter(streams.Out),
		dial:    d,
		now:     time.Now,
		log:     slog.New(slog.DiscardHandler),
	}
	if f, ok := streams.Out.(*os.File); ok {
		fd := int(f.Fd())
		a.terminal = term.IsTerminal(fd)
		if columns, _, err := term.GetSize(fd); err == nil {
			a.columns = columns
		}
	}
	a.progress = isTerminal(streams.Err)
	a.interactive = a.progress && isTerminal(streams.In)
	return a
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.rootCommand() //nolint:contextcheck // commands get the context when they run
	root.SetIn(a.streams.In)
	root.SetOut(a.out)
	root.SetErr(a.streams.Err)
	root.SetArgs(joinStates(root, args))
	err := root.ExecuteContext(a.withWarnings(ctx))
	for _, c := range a.closers {
		err = errors.Join(err, c.Close())
	}
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	if err == nil {
		return exitOK
	}
	return a.fail(ctx, err)
}

// fail prints an error and returns its exit code.
func (a *app) fail(ctx context.Context, err error) int {
	code, hint := exitOther, ""
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(a.streams.Err, "tko: interrupted")
		return exitInterrupted
	case errors.Is(err, errChanges):
		return exitChanges
	case errors.Is(err, errIncomplete), errors.Is(err, errLeftOut):
		code = exitIncomplete
	case errors.Is(err, errUsage):
		code = exitUsage
	case errors.Is(err, errUnavailable):
		code = exitUnavailable
	case errors.Is(err, tko.ErrInvalid):
		code = exitUsage
	case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrGone):
		code = exitNotFound
	case errors.Is(err, tko.ErrConflict), errors.Is(err, tko.ErrBusy): // the error says what is in the way, and what to do
		code = exitConflict
	case errors.Is(err, tko.ErrDenied):
		code = exitDenied
	case errors.Is(err, tko.ErrUnauthenticated):
		code, hint = exitDenied, "log in with tko login, or give credentials with --token-file or --tls-cert and --tls-key"
	}
	if e, ok := errors.AsType[*hintedError](err); ok {
		hint = e.hint
	}
	if id := client.RequestID(err); id != "" && hint == "" && (code == exitOther || code == exitUnavailable) {
		hint = "the server's log has more about request " + printable.Text(id)
	}
	fmt.Fprintln(a.streams.Err, a.paint(a.streams.Err, "\x1b[31m", "tko: "+printable.Text(err.Error())))
	if hint != "" {
		fmt.Fprintln(a.streams.Err, "hint: "+hint)
	}
	return code
}

// errUsage is the kind of errors in the command's arguments and flags.
var errUsage = errors.New("usage")

func usageError(cmd *cobra.Command, err error) error {
	return &hintedError{err: tko.Errorf(errUsage, "%w", err), hint: fmt.Sprintf("see %s --help", cmd.CommandPath())}
}

// A hintedError is an error with a remedy.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// withWarnings returns a context whose calls print the server's warnings, each once.
func (a *app) withWarnings(ctx context.Context) context.Context {
	var mu sync.Mutex
	seen := map[string]bool{}
	return tko.WithWarnings(ctx, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[text] {
			seen[text] = true
			a.notice("warning: %s", text)
		}
	})
}

// notice prints a line for users, unless --quiet is set.
func (a *app) notice(format string, args ...any) {
	if a.globals.quiet {
		return
	}
	fmt.Fprintln(a.streams.Err, printable.Text(fmt.Sprintf(format, args...)))
}
