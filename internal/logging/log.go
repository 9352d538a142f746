package logging

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/term"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// The formats of the log.
const (
	Auto     = "auto"     // the journal under systemd, else text on a terminal, else JSON
	Text     = "text"     // a line per record: key=value
	JSON     = "json"     // a line per record: a JSON object
	Journald = "journald" // records with fields and priorities, by the journal's own protocol
)

// Formats returns all formats.
func Formats() []string { return []string{Auto, Text, JSON, Journald} }

// Options configure the log of a program.
type Options struct {
	Format string // Auto if empty
	Level  string // see [NewLevels]; info if empty
	To     io.Writer
}

// A Log is the log of a program. Libraries write to the newest one.
type Log struct {
	*slog.Logger

	Levels *Levels
	Format string // not Auto
}

// New returns the log of a program.
func New(o Options) (*Log, error) {
	if o.Level == "" {
		o.Level = "info"
	}
	levels, err := NewLevels(o.Level)
	if err != nil {
		return nil, err
	}
	l := &Log{Levels: levels, Format: o.Format}
	if o.Format == "" || o.Format == Auto {
		l.Format = formatOf(o.To)
	}
	every := &slog.HandlerOptions{Level: slog.LevelDebug}
	var inner slog.Handler
	switch l.Format {
	case Text:
		inner = slog.NewTextHandler(o.To, every)
	case JSON:
		inner = slog.NewJSONHandler(o.To, every)
	case Journald:
		if !journal.Enabled() {
			return nil, tko.Errorf(tko.ErrInvalid, "the log format is journald, and systemd's journal (/run/systemd/journal/socket) is not there: use auto, text or json")
		}
		inner = newJournal(journal.Send, slog.NewJSONHandler(o.To, every))
	default:
		return nil, tko.Errorf(tko.ErrInvalid, "the log format is %.40q: use %s", l.Format, strings.Join(Formats(), ", "))
	}
	l.Logger = slog.New(&handler{inner: inner, levels: levels, level: levels.of(Server)})
	return l, nil
}

// formatOf returns the format for an output.
func formatOf(to io.Writer) string {
	f, ok := to.(*os.File)
	if !ok {
		return JSON
	}
	if f == os.Stderr && journal.Enabled() {
		if is, err := journal.StderrIsJournalStream(); err == nil && is {
			return Journald
		}
	}
	if term.IsTerminal(int(f.Fd())) {
		return Text
	}
	return JSON
}

// A handler adds the component, the request and the trace to records, and drops
// those below the level of the component.
type handler struct {
	inner     slog.Handler
	levels    *Levels
	level     *slog.LevelVar
	component string
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.component != "" {
		r.AddAttrs(slog.String(componentKey, h.component))
	}
	if id := trail.Request(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	if id := trail.TraceID(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.inner.Handle(ctx, r)
}

// WithAttrs implements slog.Handler. The newest component replaces the one
// before.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	rest := slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool {
		if a.Key != componentKey {
			return false
		}
		n.component = a.Value.String()
		n.level = h.levels.of(n.component)
		return true
	})
	if len(rest) > 0 {
		n.inner = h.inner.WithAttrs(rest)
	}
	return &n
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	n := *h
	n.inner = h.inner.WithGroup(name)
	return &n
}
