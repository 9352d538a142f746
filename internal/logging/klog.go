package logging

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// libraryLog is the handler of the newest server. Kubernetes' libraries have one
// logger for the process, which may be set only before they are used: it forwards to
// this handler, and without one discards.
var libraryLog atomic.Pointer[slog.Handler]

func init() { // no other goroutine uses the logger yet
	handler := slog.DiscardHandler
	libraryLog.Store(&handler)
	klog.SetSlogLogger(slog.New(quieter{to: &libraryLog}))
}

// Kubernetes sends the log of Kubernetes' libraries to a logger.
func Kubernetes(log *slog.Logger) {
	handler := log.With(componentKey, KubernetesLib).Handler()
	libraryLog.Store(&handler)
}

// quieter is a handler that forwards to the newest handler, and lowers the level
// Info of libraries to Debug.
type quieter struct {
	to   *atomic.Pointer[slog.Handler]
	with []func(slog.Handler) slog.Handler
}

// now returns the current handler.
func (q quieter) now() slog.Handler {
	handler := *q.to.Load()
	for _, with := range q.with {
		handler = with(handler)
	}
	return handler
}

func (q quieter) and(with func(slog.Handler) slog.Handler) slog.Handler {
	return quieter{q.to, append(slices.Clip(q.with), with)}
}

// Enabled implements slog.Handler.
func (q quieter) Enabled(ctx context.Context, level slog.Level) bool {
	return (*q.to.Load()).Enabled(ctx, quiet(level))
}

// Handle implements slog.Handler.
func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quiet(r.Level)
	return q.now().Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return q.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (q quieter) WithGroup(name string) slog.Handler {
	return q.and(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func quiet(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return min(level, slog.LevelDebug)
	}
	return level
}
