package catalog

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	// collectFirst is the maximum delay of the first collection.
	collectFirst = time.Minute
	// collectEvery is the interval between collections.
	collectEvery = 10 * time.Minute
)

// Retain lets the store remove history that retention doesn't cover, at intervals,
// until the context ends. It returns nil then. Several servers may run it on
// one database: only one of them collects at a time.
func (s *Service) Retain(ctx context.Context, retention Retention) error {
	s.retention.Store(&retention)
	wait := pause.Between(0, collectFirst)
	for {
		if pause.For(ctx, wait) != nil {
			return nil //nolint:nilerr // ending the context is the way to stop
		}
		s.collect(ctx, retention)
		wait = collectEvery
	}
}

// collect runs one collection and logs its result.
func (s *Service) collect(ctx context.Context, retention Retention) {
	began := time.Now()
	done, err := s.store.Collect(ctx, retention)
	facts := []any{"changes", done.Changes, "packages", done.Packages, "metadata", done.Metadata, "pairs", done.Pairs, "tokens", done.Tokens, "took", time.Since(began)}
	switch {
	case ctx.Err() != nil:
		s.log.DebugContext(ctx, "collection of old data stopped", facts...)
	case err != nil:
		s.log.WarnContext(ctx, "can't collect old data, will try again", append(facts, "err", err)...)
	case done.Elsewhere:
		s.log.DebugContext(ctx, "another server is collecting")
	case done.Changes+done.Packages+done.Metadata+done.Pairs > 0:
		s.log.InfoContext(ctx, "collected", facts...)
	default:
		s.log.DebugContext(ctx, "collected", facts...)
	}
}
