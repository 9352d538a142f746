package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko/internal/pause"
)

func TestPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("waited for %s: %v", time.Since(began), err)
		}
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		began = time.Now()
		for range 2 { // the second time, the context has ended
			if err := pause.For(ctx, time.Hour); !errors.Is(err, late) || time.Since(began) != time.Minute {
				t.Errorf("waited for %s: %v", time.Since(began), err)
			}
		}
		if err := pause.For(ctx, 0); !errors.Is(err, late) {
			t.Errorf("a pause of nothing returned %v after the end of the context", err)
		}
	})
}

func TestSpreadDelaysStayWithinTheirBounds(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := pause.Between(3, 5)
		seen[d] = true
		if d < 3 || d > 5 {
			t.Fatalf("%d is not between 3 and 5", d)
		}
		if d := pause.About(time.Hour, 0.1); d < 54*time.Minute || d > 66*time.Minute {
			t.Fatalf("%s is not about an hour", d)
		}
	}
	if len(seen) != 3 {
		t.Errorf("got %v, want all of 3, 4 and 5", seen)
	}
	if a, b, c := pause.Between(2, 2), pause.Between(2, 1), pause.About(0, 0.5); a != 2 || b != 2 || c != 0 {
		t.Errorf("got %d, %d and %d for empty ranges", a, b, c)
	}
}
