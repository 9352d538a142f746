package schedule

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// How long calls for looks are made again after, when one fails.
const (
	stirPause    = time.Second
	maxStirPause = time.Minute
	stirFlush    = 5 * time.Second // how long a last call may take when we stop
)

// stirs are sites that a target noticed something about. Looks at them are
// called for by way of the queue, like all others: so nobody else is at a site
// meanwhile, in this process or another. Make them with newStirs.
type stirs struct {
	mu      sync.Mutex
	waiting map[tko.SiteID]bool
	wake    chan struct{}
}

func newStirs() *stirs { return &stirs{waiting: map[tko.SiteID]bool{}, wake: make(chan struct{}, 1)} }

// add wants sites to be looked at. It doesn't wait.
func (s *stirs) add(ids ...tko.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.waiting[id] = true
	}
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

func (s *stirs) take() []tko.SiteID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.waiting))
	clear(s.waiting)
	return ids
}

// run calls for looks until the context ends. A call that fails is made again,
// with what came meanwhile.
func (s *stirs) run(ctx context.Context, client Client, log *slog.Logger) {
	pause := stirPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		ids := s.take()
		err := client.EnqueueSites(ctx, ids)
		if err == nil {
			log.DebugContext(ctx, "called for looks at sites where something happened", "sites", len(ids))
			pause = stirPause
			continue
		}
		s.add(ids...)
		if ctx.Err() != nil {
			return
		}
		log.WarnContext(ctx, "can't call for looks at sites where something happened; it is tried again", "sites", len(ids), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxStirPause)
	}
}

// flush calls for the looks that are still wanted when nothing runs any more, so
// that another process makes them.
func (s *stirs) flush(ctx context.Context, client Client, log *slog.Logger) {
	ids := s.take()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stirFlush)
	defer cancel()
	if err := client.EnqueueSites(ctx, ids); err != nil {
		log.WarnContext(ctx, "can't call for looks at sites where something happened; their next look is when it is due", "sites", len(ids), "err", err)
	}
}
