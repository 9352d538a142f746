package logging

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// A journalHandler writes records to systemd's journal, by its own protocol:
// each attribute is a field TKO_NAME. The message also has the attributes, as
// text, because journalctl shows only the message by default.
type journalHandler struct {
	send     func(message string, priority journal.Priority, fields map[string]string) error
	fallback slog.Handler // for records that the journal doesn't accept

	attrs  []slog.Attr // groups are part of the keys
	prefix string      // of keys, for groups
}

func newJournal(send func(string, journal.Priority, map[string]string) error, fallback slog.Handler) *journalHandler {
	return &journalHandler{send: send, fallback: fallback}
}

// Enabled implements slog.Handler.
func (*journalHandler) Enabled(context.Context, slog.Level) bool { return true }

// identifier is the name of this program in the journal.
var identifier = filepath.Base(os.Args[0])

// Handle implements slog.Handler.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, h.prefix, a)
		return true
	})
	fields := map[string]string{"SYSLOG_IDENTIFIER": identifier}
	var text bytes.Buffer
	text.WriteString(r.Message)
	for _, a := range attrs {
		value := a.Value.String()
		fields[fieldOf(a.Key)] = value
		text.WriteString(" " + a.Key + "=" + quoted(value))
	}
	if err := h.send(text.String(), priorityOf(r.Level), fields); err != nil {
		r.AddAttrs(slog.String("journal_err", err.Error()))
		return h.fallback.Handle(ctx, r)
	}
	return nil
}

// quoted returns a value for one line of text: values can't look like other
// attributes or lines.
func quoted(value string) string {
	plain := value != "" && !strings.ContainsFunc(value, func(c rune) bool {
		return c <= ' ' || c == '"' || c == '=' || c == 0x7f || c > '~' && !strconv.IsPrint(c)
	})
	if plain {
		return value
	}
	return strconv.Quote(value)
}

func priorityOf(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	default:
		return journal.PriDebug
	}
}

// maxField is the maximum length of the name of a field.
const maxField = 64

// fieldOf returns the name of an attribute's field: the journal accepts only
// capital letters, digits and _.
func fieldOf(key string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return c
		default:
			return '_'
		}
	}, key)
	name = "TKO_" + name
	return name[:min(len(name), maxField)]
}

// flatten appends an attribute, or those of a group.
func flatten(to []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() != slog.KindGroup {
		if a.Equal(slog.Attr{}) {
			return to
		}
		return append(to, slog.Attr{Key: prefix + a.Key, Value: a.Value})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range a.Value.Group() {
		to = flatten(to, prefix, inner)
	}
	return to
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.attrs = slices.Clone(h.attrs)
	for _, a := range attrs {
		n.attrs = flatten(n.attrs, h.prefix, a)
	}
	n.fallback = h.fallback.WithAttrs(attrs)
	return &n
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	n := *h
	n.prefix, n.fallback = h.prefix+name+".", h.fallback.WithGroup(name)
	return &n
}
