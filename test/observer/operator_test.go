package observer

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

// An operator stops and freezes sites, and starts the rollouts that placements made.
type operator struct{ actor }

func newOperator(w *world, l *ledger, random *rand.Rand) *operator {
	return &operator{actor{w: w, l: l, name: "root", client: w.dial("root"), random: random}}
}

func (o *operator) run(ctx context.Context) {
	defer o.releaseAll(context.WithoutCancel(ctx))
	for i := 0; ctx.Err() == nil; i++ {
		switch i % 3 {
		case 1:
			o.stop(ctx)
		case 2:
			o.freeze(ctx)
		case 0:
			o.releaseWaves(ctx)
		}
		for range 5 {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
				o.start(ctx)
			}
		}
	}
}

// start starts what placements and sources planned, and undoes some of what is done.
func (o *operator) start(ctx context.Context) {
	listing, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var ids []tko.RolloutID
	for r, err := range o.client.Rollouts(listing, tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil {
			return
		}
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if ofUnits.MatchString(string(id)) {
			continue
		}
		s, err := o.client.RolloutStatus(listing, id)
		if err != nil {
			return
		}
		command, rows := tko.RolloutCommand{ID: id, Plan: s.Plan}, 0
		for _, n := range s.Kinds {
			rows += n
		}
		switch {
		case rows == 0: // it was planned before there was anything to change
			continue
		case s.State == "Planned" && o.random.IntN(2) == 0:
			command.Verb, command.SkipBlocked = "start", true
		case s.State == "Paused":
			command.Verb = one(o.random, "undo", "cancel")
		case s.State == "Running" && o.random.IntN(60) == 0:
			command.Verb = one(o.random, "pause", "undo")
		case s.State == "Done" && s.UndoneBy == "" && s.Undoes == "" && o.random.IntN(4) == 0:
			command.Verb = "undo"
		default:
			continue
		}
		o.do(ctx, &request{verb: command.Verb}, func(ctx context.Context) error {
			_, err := o.client.RolloutDo(ctx, command)
			return err
		})
	}
}
