package grpcapi

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// LogBackend reads and changes the levels of the server's log.
type LogBackend interface {
	LogLevels(ctx context.Context) ([]tko.LogLevel, error)
	SetLogLevels(ctx context.Context, levels string, lasting time.Duration) ([]tko.LogLevel, error)
}

// logs implements tko.Logs on a backend.
type logs struct {
	tkopb.UnimplementedLogsServer

	backend Backend
}

func (l *logs) GetLogLevels(ctx context.Context, _ *emptypb.Empty) (*tkopb.LogLevels, error) {
	return newLogLevels(l.backend.LogLevels(ctx))
}

func (l *logs) SetLogLevels(ctx context.Context, m *tkopb.SetLogLevels) (*tkopb.LogLevels, error) {
	lasting, err := wire.Duration("lasting", m.GetLasting())
	if err != nil {
		return nil, err
	}
	return newLogLevels(l.backend.SetLogLevels(ctx, m.GetLevels(), lasting))
}

func newLogLevels(levels []tko.LogLevel, err error) (*tkopb.LogLevels, error) {
	return &tkopb.LogLevels{Levels: wire.Each(levels, wire.LogLevel.Write)}, err
}
