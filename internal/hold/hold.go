// Package hold keeps entities from being changed: stops hold what operators halt, freezes hold sites
// until a time. Commits ask it, and so do controllers before they begin.
package hold

import (
	"context"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// enqueueBatch is the number of sites that are enqueued at once.
const enqueueBatch = 10_000

// What stops and freezes have in common.
type holds struct {
	rights *rights.Authorizer // callers enter and commit through it
	store  record.Store
	reader record.Lookup
	gate   *gate.Gate // knows what may be released at once
	log    *slog.Logger
}

// Parts are the parts of a catalog that keep entities from being changed.
type Parts struct {
	Stops   *SiteStops
	Freezes *SiteFreezes
	Holds   *Holds
}

// New returns the parts for stops and freezes on a store.
func New(authorizer *rights.Authorizer, store record.Store, g *gate.Gate, log *slog.Logger) Parts {
	h := &holds{rights: authorizer, store: store, reader: record.Lookup{Store: store}, gate: g, log: log}
	return Parts{Stops: &SiteStops{holds: h}, Freezes: &SiteFreezes{holds: h}, Holds: &Holds{holds: h}}
}

// Holds are what the other parts of a catalog ask before they write. The callers of its methods
// have entered the catalog.
type Holds struct{ holds *holds }

// Check returns an ErrStopped if the stops of a book hold one of the writes.
func (h *Holds) Check(ctx context.Context, book *rights.Book, writes []record.Write) error {
	return h.holds.checkStops(ctx, book, writes)
}

// FreeOf returns those of some writes that no stop holds.
func (h *Holds) FreeOf(ctx context.Context, writes []record.Write) ([]record.Write, error) {
	return h.holds.freeOf(ctx, writes)
}

// FreeWork returns those claimed items of preparation that no stop holds, and ends the claims
// of the others. backoff is that of the queue.
func (h *Holds) FreeWork(ctx context.Context, queue string, items []tko.WorkItem, backoff func(attempt int) time.Duration) ([]tko.WorkItem, error) {
	return h.holds.withoutStopped(ctx, queue, items, backoff)
}

// ActiveRollouts returns the states of the rollouts that are in progress.
func (h *Holds) ActiveRollouts(ctx context.Context) ([]record.RolloutState, error) {
	return h.holds.activeRollouts(ctx)
}

// Freezes ends the freezes that are over, and returns the others, the suspension of sites
// included, and the version of the rules that they are part of.
func (h *Holds) Freezes(ctx context.Context) ([]execute.Freeze, int64, error) {
	return h.holds.freezes(ctx)
}
