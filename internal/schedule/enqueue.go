package schedule

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	enqueuePause    = time.Second // between tries after one failed, at first; then twice as long each time
	maxEnqueuePause = time.Minute
	flushTimeout    = 5 * time.Second // of the last try when the process stops
)

// An enqueuer enqueues sites for which a target received events. It makes their
// work due in the queue of the data controller, so that no two workers, of this
// process or another, reconcile a site concurrently. Make it with newEnqueuer. It
// is safe for concurrent use.
type enqueuer struct {
	mu      sync.Mutex
	waiting map[tko.SiteID]bool
	wake    chan struct{}
}

func newEnqueuer() *enqueuer {
	return &enqueuer{waiting: map[tko.SiteID]bool{}, wake: make(chan struct{}, 1)}
}

// add notes sites that run enqueues. It doesn't block.
func (q *enqueuer) add(ids ...tko.SiteID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.waiting[id] = true
	}
	select {
	case q.wake <- struct{}{}:
	default: // run is awake already
	}
}

func (q *enqueuer) take() []tko.SiteID {
	q.mu.Lock()
	defer q.mu.Unlock()
	ids := slices.Sorted(maps.Keys(q.waiting))
	clear(q.waiting)
	return ids
}

// run enqueues the noted sites until the context ends. If that fails, it tries
// again, together with the sites that were noted since.
func (q *enqueuer) run(ctx context.Context, client Client, log *slog.Logger) {
	wait := enqueuePause
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		ids := q.take()
		err := client.EnqueueSites(ctx, ids)
		if err == nil {
			log.DebugContext(ctx, "enqueued sites after events", "sites", len(ids))
			wait = enqueuePause
			continue
		}
		q.add(ids...)
		if ctx.Err() != nil {
			return
		}
		log.WarnContext(ctx, "can't enqueue sites after events; trying again", "sites", len(ids), "err", err)
		if pause.For(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, maxEnqueuePause)
	}
}

// flush enqueues the sites that are still noted after run has returned, so that
// another process reconciles them.
func (q *enqueuer) flush(ctx context.Context, client Client, log *slog.Logger) {
	ids := q.take()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := client.EnqueueSites(ctx, ids); err != nil {
		log.WarnContext(ctx, "can't enqueue sites after events; they are reconciled when their work is due", "sites", len(ids), "err", err)
	}
}
