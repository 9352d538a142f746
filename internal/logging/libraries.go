package logging

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/grpclog"
)

// Libraries redirects the global loggers of libraries to log. Otherwise they would
// write plain text between its lines.
func Libraries(log *slog.Logger) {
	Kubernetes(log)
	logGRPC(log)
	logOpenTelemetry(log)
	// The log of Go's standard library, which HTTP servers and other libraries use.
	slog.SetDefault(log.With(componentKey, Library))
}

// OpenTelemetry's loggers write to the log of the newest server.
var (
	setTelemetryLog sync.Once
	telemetryLog    atomic.Pointer[slog.Handler]
)

func logOpenTelemetry(log *slog.Logger) {
	handler := log.With(componentKey, OpenTelemetry).Handler()
	telemetryLog.Store(&handler)
	setTelemetryLog.Do(func() {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			slog.New(*telemetryLog.Load()).Warn("telemetry can't be exported", "err", err)
		}))
		otel.SetLogger(logr.FromSlogHandler(quieter{to: &telemetryLog}))
	})
}

// gRPC's logger can only be set before gRPC does anything. It writes to the log of
// the newest server.
var (
	setGRPCLog sync.Once
	grpcOutput atomic.Pointer[slog.Logger]
)

func logGRPC(log *slog.Logger) {
	grpcOutput.Store(log.With(componentKey, GRPC))
	setGRPCLog.Do(func() { grpclog.SetLoggerV2(grpcLog{}) })
}

// A grpcLog writes gRPC's log to the server's log. By default gRPC logs errors only,
// so lower levels are logged at debug level.
type grpcLog struct{}

func (grpcLog) write(level slog.Level, text string) {
	grpcOutput.Load().Log(context.Background(), level, strings.TrimSpace(text)) //nolint:sloglint // the text is gRPC's message
}

func (grpcLog) enabled(level slog.Level) bool {
	return grpcOutput.Load().Enabled(context.Background(), level)
}

// The following methods implement grpclog.LoggerV2. They format texts only if they
// are logged, because gRPC logs every connection.
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
