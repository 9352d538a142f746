package workqueue

import (
	"testing"
	"time"
)

func TestBackoffDoublesWithJitter(t *testing.T) {
	t.Parallel()
	s := New(nil, nil, Settings{MinBackoff: time.Second, MaxBackoff: time.Minute})
	for attempt, most := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 7: time.Minute, 1 << 40: time.Minute} {
		for range 100 {
			if d := s.backoff(attempt); d > most || d < most*3/4 {
				t.Fatalf("after failure %d work waits for %s, want between 3/4 of %s and all of it", attempt, d, most)
			}
		}
	}
}
