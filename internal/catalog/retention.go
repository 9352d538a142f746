package catalog

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// collectFirst is when the first collection is, at the latest.
	collectFirst = time.Minute
	// collectEvery is how long it is to the next one.
	collectEvery = 10 * time.Minute
)

// Retain has the store forget now and then what need not be kept, until the
// context ends. It answers nil then. Several may do so on one database: they
// take turns.
func (s *Service) Retain(ctx context.Context, keep Retention) error {
	wait := rand.N(collectFirst) //nolint:gosec // spreads load, hides nothing
	for {
		if sleep(ctx, wait) != nil {
			return nil //nolint:nilerr // the end of the context is the end
		}
		s.collect(ctx, keep)
		wait = collectEvery
	}
}

// collect lets the store collect once, and says in the log what came of it.
func (s *Service) collect(ctx context.Context, keep Retention) {
	began := time.Now()
	done, err := s.store.Collect(ctx, keep)
	facts := []any{"changes", done.Changes, "packages", done.Packages, "metadata", done.Metadata, "pairs", done.Pairs, "tokens", done.Tokens, "took", time.Since(began)}
	switch {
	case ctx.Err() != nil:
		s.log.DebugContext(ctx, "collection was ended", facts...)
	case err != nil:
		s.log.WarnContext(ctx, "can't collect what need not be kept, will try again", append(facts, "err", err)...)
	case done.Elsewhere:
		s.log.DebugContext(ctx, "another server is collecting")
	case done.Changes+done.Packages+done.Metadata+done.Pairs > 0:
		s.log.InfoContext(ctx, "collected", facts...)
	default:
		s.log.DebugContext(ctx, "collected", facts...)
	}
}
