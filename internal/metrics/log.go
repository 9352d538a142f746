package metrics

import (
	"context"
	"log/slog"
)

// levels are the values of the label level.
var levels = []string{"debug", "info", "warn", "error"}

// CountLines returns a handler that counts the lines of a handler of the log.
func (m *Metrics) CountLines(handler slog.Handler) slog.Handler { return lines{handler, m} }

type lines struct {
	slog.Handler

	metrics *Metrics
}

func (l lines) Handle(ctx context.Context, r slog.Record) error {
	level := levels[0]
	switch {
	case r.Level >= slog.LevelError:
		level = levels[3]
	case r.Level >= slog.LevelWarn:
		level = levels[2]
	case r.Level >= slog.LevelInfo:
		level = levels[1]
	}
	l.metrics.logs.WithLabelValues(level).Inc()
	return l.Handler.Handle(ctx, r)
}

func (l lines) WithAttrs(attributes []slog.Attr) slog.Handler {
	return lines{l.Handler.WithAttrs(attributes), l.metrics}
}

func (l lines) WithGroup(name string) slog.Handler {
	return lines{l.Handler.WithGroup(name), l.metrics}
}
