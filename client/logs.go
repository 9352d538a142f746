package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// LogLevels returns the level of each component of the server's log, sorted by
// component.
func (c *Client) LogLevels(ctx context.Context) ([]tko.LogLevel, error) {
	return logLevels(call(ctx, c, c.logs.GetLogLevels, &emptypb.Empty{}))
}

// SetLogLevels changes levels of the server's log, for a time (0: until the server
// ends), and returns those of all components. The text is LEVEL for all
// components, and COMPONENT=LEVEL, separated by commas; a level is debug, info,
// warn, error, or default: that of the start of the server.
func (c *Client) SetLogLevels(ctx context.Context, levels string, lasting time.Duration) ([]tko.LogLevel, error) {
	m := &tkopb.SetLogLevels{Levels: levels}
	if lasting != 0 {
		m.Lasting = durationpb.New(lasting)
	}
	return logLevels(call(ctx, c, c.logs.SetLogLevels, m))
}

func logLevels(m *tkopb.LogLevels, err error) ([]tko.LogLevel, error) {
	return wire.Each(m.GetLevels(), wire.LogLevel.Read), err
}
