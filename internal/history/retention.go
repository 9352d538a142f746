package history

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Retention returns which part of the past can be read, and what it takes.
func (s *History) Retention(ctx context.Context) (tko.Retention, error) {
	if _, _, err := s.rights.Enter(ctx, tko.KindDeployment, access.Read); err != nil {
		return tko.Retention{}, err
	}
	oldest, newest, err := s.store.Past(ctx)
	if err != nil {
		return tko.Retention{}, err
	}
	size, err := s.store.HistorySize(ctx)
	r := tko.Retention{
		OldestPosition: oldest.Position, OldestTime: oldest.Time, NewestPosition: newest.Position, NewestTime: newest.Time,
		Changes: size.Changes, Bytes: size.Bytes, DatabaseBytes: size.DatabaseBytes,
	}
	if keep := s.retention.Load(); keep != nil {
		r.KeepChanges, r.KeepRevisions = keep.Changes, keep.Revisions
		for _, l := range keep.Longer {
			r.Longer = append(r.Longer, tko.RetentionPolicy{Name: l.Name, Keep: l.Keep})
		}
	}
	for _, l := range size.Longer {
		i := slices.IndexFunc(r.Longer, func(p tko.RetentionPolicy) bool { return p.Name == l.Policy })
		if i < 0 { // another server has it, or the next collection removes what it retains
			r.Longer = append(r.Longer, tko.RetentionPolicy{Name: l.Policy})
			i = len(r.Longer) - 1
		}
		r.Longer[i].Deployments, r.Longer[i].Changes, r.Longer[i].Bytes = l.Deployments, l.Changes, l.Bytes
	}
	return r, err
}

const (
	// collectFirst is the maximum delay of the first collection.
	collectFirst = time.Minute
	// collectEvery is the interval between collections.
	collectEvery = 10 * time.Minute
)

// Retain lets the store remove history that retention doesn't cover, at intervals,
// until the context ends. It returns nil then. Several servers may run it on
// one database: only one of them collects at a time.
func (s *History) Retain(ctx context.Context, retention record.Retention) error {
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
func (s *History) collect(ctx context.Context, retention record.Retention) {
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
