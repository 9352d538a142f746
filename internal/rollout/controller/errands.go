package controller

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tko-orchestrator/tko"
)

// maxErrands limits the errands that run at once. One beyond it is due again.
const maxErrands = 64

// errands are measurements, and requests to ticket systems. They run outside of claims of
// work: a server that doesn't respond must not keep a rollout from being observed.
type errands struct {
	client  Client
	measure Measure
	ask     Ask
	log     *slog.Logger

	under sync.WaitGroup
	mutex sync.Mutex
	busy  map[string]bool // by rollout, and metric or ticket
}

// begin starts the errands of a rollout that are due and don't run yet. They end with the
// context.
func (e *errands) begin(ctx context.Context, id tko.RolloutID) {
	if e.measure != nil {
		due, err := e.client.RolloutMeasurements(ctx, id)
		if err != nil {
			e.log.WarnContext(ctx, "measurements not known", "rollout", id, "err", err)
		}
		for _, one := range due {
			e.start(string(id)+" metric "+one.Metric, func() {
				if err := e.client.ReportRolloutMeasurement(ctx, e.measure(ctx, one)); err != nil && ctx.Err() == nil {
					e.log.WarnContext(ctx, "measurement not reported", "rollout", id, "metric", one.Metric, "err", err)
				}
			})
		}
	}
	if e.ask == nil {
		return
	}
	due, err := e.client.RolloutTickets(ctx, id)
	if err != nil {
		e.log.WarnContext(ctx, "tickets not known", "rollout", id, "err", err)
	}
	for _, one := range due {
		e.start(string(id)+" ticket "+one.Key, func() {
			done := e.ask(ctx, one)
			if ctx.Err() != nil {
				return // the end of this program is no failure of the system
			}
			if err := e.client.ReportRolloutTicket(ctx, done); err != nil && ctx.Err() == nil {
				e.log.WarnContext(ctx, "what a ticket system says doesn't count, or was not recorded", "rollout", id, "system", one.System, "ticket", done.Ticket, "err", err)
			}
		})
	}
}

// start runs an errand, unless it runs already.
func (e *errands) start(key string, run func()) {
	if !e.take(key) {
		return
	}
	e.under.Go(func() {
		defer e.release(key)
		run()
	})
}

func (e *errands) take(key string) bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.busy[key] || len(e.busy) >= maxErrands {
		return false
	}
	e.busy[key] = true
	return true
}

func (e *errands) release(key string) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	delete(e.busy, key)
}
