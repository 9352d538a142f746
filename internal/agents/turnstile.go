package agents

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	// enrolling is the number of enrollments in a second; tokens can't be found by trying, and
	// signatures cost time.
	enrolling = 50
	// enrollingWait is how long an enrollment waits for its turn. Agents that are refused try again
	// after a growing delay, so a queue that is too short leaves the server idle.
	enrollingWait = 10 * time.Second
)

// A turnstile lets a number of calls in each second pass, in the order in which they came.
type turnstile struct {
	limiter *rate.Limiter
	most    time.Duration // that a call waits
}

func newTurnstile() *turnstile {
	return &turnstile{limiter: rate.NewLimiter(enrolling, 2*enrolling), most: enrollingWait}
}

// pass waits for the turn of a call. It is an ErrUnavailable if that would take too long.
func (t *turnstile) pass(ctx context.Context) error {
	turn := t.limiter.Reserve()
	if turn.Delay() > t.most {
		turn.Cancel()
		return tko.Errorf(tko.ErrUnavailable, "too many agents enroll at the same time: try again")
	}
	if err := pause.For(ctx, turn.Delay()); err != nil {
		turn.Cancel() // its turn is for another one
		return err
	}
	return nil
}
