package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"

	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
)

func newLog(c *config.Config, to io.Writer) *slog.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[c.LogLevel]
	if c.Verbose > 0 {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}

// logLibraries makes libraries log in our format that have a log of their own
// for the whole process: otherwise they write plain text between our lines.
func logLibraries(log *slog.Logger) {
	kubeapi.LogLibraries(log)
	logGRPC(log)
	// Go's own log: HTTP servers write to it, and libraries.
	slog.SetDefault(log.With("component", "library"))
}

// gRPC's log may be set only before gRPC does anything. It leads to that of the
// newest server.
var (
	setGRPCLog sync.Once
	grpcOutput atomic.Pointer[slog.Logger]
)

func logGRPC(log *slog.Logger) {
	grpcOutput.Store(log.With("component", "grpc"))
	setGRPCLog.Do(func() { grpclog.SetLoggerV2(grpcLog{}) })
}

// grpcLog writes what gRPC logs to ours. By itself gRPC writes errors only: so
// what is less is for debugging.
type grpcLog struct{}

func (grpcLog) write(level slog.Level, text string) {
	grpcOutput.Load().Log(context.Background(), level, strings.TrimSpace(text)) //nolint:sloglint // the message is what gRPC says
}

func (grpcLog) enabled(level slog.Level) bool {
	return grpcOutput.Load().Enabled(context.Background(), level)
}

// Info and what follows implement grpclog.LoggerV2. Their texts are made only if
// they are logged, because gRPC logs every connection.
func (l grpcLog) Info(args ...any) { l.debug(fmt.Sprint, args) }

func (l grpcLog) Infoln(args ...any) { l.debug(fmt.Sprintln, args) }

func (l grpcLog) Infof(format string, args ...any) { l.debugf(format, args) }

func (l grpcLog) Warning(args ...any) { l.debug(fmt.Sprint, args) }

func (l grpcLog) Warningln(args ...any) { l.debug(fmt.Sprintln, args) }

func (l grpcLog) Warningf(format string, args ...any) { l.debugf(format, args) }

func (l grpcLog) Error(args ...any) { l.write(slog.LevelWarn, fmt.Sprint(args...)) }

func (l grpcLog) Errorln(args ...any) { l.write(slog.LevelWarn, fmt.Sprintln(args...)) }

func (l grpcLog) Errorf(format string, args ...any) {
	l.write(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (l grpcLog) Fatal(args ...any) { l.fatal(fmt.Sprint(args...)) }

func (l grpcLog) Fatalln(args ...any) { l.fatal(fmt.Sprintln(args...)) }

func (l grpcLog) Fatalf(format string, args ...any) { l.fatal(fmt.Sprintf(format, args...)) }

func (l grpcLog) V(level int) bool { return level <= 0 || l.enabled(slog.LevelDebug) }

func (l grpcLog) debug(text func(...any) string, args []any) {
	if l.enabled(slog.LevelDebug) {
		l.write(slog.LevelDebug, text(args...))
	}
}

func (l grpcLog) debugf(format string, args []any) {
	if l.enabled(slog.LevelDebug) {
		l.write(slog.LevelDebug, fmt.Sprintf(format, args...))
	}
}

func (l grpcLog) fatal(text string) {
	l.write(slog.LevelError, text)
	os.Exit(1)
}
