package agents

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/tko-orchestrator/tko"
)

// Of many agents that enroll at once, as many pass as do in the time that one may wait; the others
// are refused at once, and none waits longer.
func TestEnrollmentsWaitForTheirTurnWithinALimit(t *testing.T) {
	t.Parallel()
	gate := &turnstile{limiter: rate.NewLimiter(100, 10), most: 500 * time.Millisecond}
	var mu sync.Mutex
	passed, refused := 0, 0
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			err := gate.pass(t.Context())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				passed++
			case errors.Is(err, tko.ErrUnavailable):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if passed < 55 || passed > 150 || passed+refused != 200 {
		t.Errorf("%d passed and %d were refused: want about 60 of 200 to pass, 10 at once and 50 in the time that they wait", passed, refused)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 {
		if err := gate.pass(ended); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, tko.ErrUnavailable) {
			t.Errorf("a call that ended meanwhile: %v", err)
		}
	}
}
