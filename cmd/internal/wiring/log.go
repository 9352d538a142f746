package wiring

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/sibling"
)

// SendLevels returns the server's handler of LogLevels: it sends the levels of the
// log, and again whenever they change.
func SendLevels(levels *logging.Levels) sibling.Handler {
	return func(ctx context.Context, s *sibling.Stream) error {
		for {
			spec, changed := levels.Watch()
			if err := s.Send(spec); err != nil {
				return err
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// followPause is the time before levels are followed again after an error.
const followPause = time.Second

// FollowLevels gives the program's log the levels of the server's log until the
// context ends.
func FollowLevels(ctx context.Context, server *sibling.Peer, levels *logging.Levels, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := followLevels(ctx, server, levels); ctx.Err() == nil && err != nil && !errors.Is(err, io.EOF) {
			log.DebugContext(ctx, "can't follow the levels of the server's log, will try again", "err", err)
		}
		_ = pause.For(ctx, followPause)
	}
}

func followLevels(ctx context.Context, server *sibling.Peer, levels *logging.Levels) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, _, err := sibling.Open(ctx, server, LogLevels)
	if err != nil {
		return err
	}
	for {
		var spec string
		if err := s.Receive(&spec); err != nil {
			return err
		}
		if err := levels.Set(spec, 0); err != nil {
			return err
		}
	}
}
