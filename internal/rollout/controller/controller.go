// Package controller is the rollout controller: the role rollout. It claims the work of
// rollouts and lets the data controller advance them. It decides nothing and keeps
// nothing: any number of controllers may run, and any may be killed at any time.
package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/work"
)

// Client is the part of the data controller's API that the controller uses.
type Client interface {
	work.Client
	// AdvanceRollout does the next step of a rollout, and returns the time after which to
	// call it again; negative: only when something changes.
	AdvanceRollout(ctx context.Context, id tko.RolloutID) (time.Duration, error)
	// RolloutMeasurements returns the measurements of a rollout that are due.
	RolloutMeasurements(ctx context.Context, id tko.RolloutID) ([]tko.RolloutMeasurement, error)
	// ReportRolloutMeasurement reports a measurement with its values.
	ReportRolloutMeasurement(ctx context.Context, m tko.RolloutMeasurement) error
	// RolloutTickets returns what is to be done at ticket systems for a rollout.
	RolloutTickets(ctx context.Context, id tko.RolloutID) ([]tko.RolloutTicket, error)
	// ReportRolloutTicket reports what a ticket system responded.
	ReportRolloutTicket(ctx context.Context, t tko.RolloutTicket) error
}

// Measure makes the queries of a measurement, and returns it with their values.
type Measure func(ctx context.Context, m tko.RolloutMeasurement) tko.RolloutMeasurement

// Ask makes the request of a ticket, and returns it with the response.
type Ask func(ctx context.Context, t tko.RolloutTicket) tko.RolloutTicket

// Options are the settings of a Controller. The zero value works.
type Options struct {
	Worker      string
	Concurrency int           // rollouts that are advanced at the same time; 8 if 0
	Lease       time.Duration // of work items; the loop's default if 0
	Log         *slog.Logger  // nowhere if nil
	Observer    work.Observer // of the work; none if nil
	Measure     Measure       // nothing is measured if nil: rollouts with metrics don't begin
	Ask         Ask           // no ticket system is asked if nil: waves that one approves don't begin
}

// Run works until the context ends.
func Run(ctx context.Context, client Client, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	outside := &errands{client: client, measure: o.Measure, ask: o.Ask, log: o.Log, busy: map[string]bool{}}
	ctx, stop := context.WithCancel(ctx)
	defer outside.under.Wait()
	defer stop()
	loop := &work.Loop{
		Client: client, Queue: tko.QueueRollout, Worker: o.Worker, Concurrency: o.Concurrency, Lease: o.Lease, Log: o.Log, Observer: o.Observer,
	}
	loop.Do = func(claimed context.Context, item tko.WorkItem) work.Result {
		result := advance(claimed, client, item, o.Log)
		if result.Err == nil {
			outside.begin(ctx, tko.RolloutID(item.Key)) // they outlive the claim
		}
		return result
	}
	return loop.Run(ctx)
}

// maxSteps limits the steps under one claim, so that other rollouts get their turn.
const maxSteps = 20

func advance(ctx context.Context, client Client, item tko.WorkItem, log *slog.Logger) work.Result {
	for range maxSteps {
		again, err := client.AdvanceRollout(ctx, tko.RolloutID(item.Key))
		switch {
		case err != nil:
			return work.Result{Err: err}
		case again < 0:
			log.DebugContext(ctx, "rollout waits for a change", "rollout", item.Key)
			return work.Result{}
		case again > 0:
			return work.Result{Outcome: tko.WorkLater, Retry: again}
		}
	}
	return work.Result{Outcome: tko.WorkLater, Retry: time.Millisecond}
}
