package gitops

import (
	"testing"
	"time"
)

// Removals that the budget of an inventory allowed are charged to it for an hour, and then
// no longer.
func TestRemovalsAreChargedForAnHour(t *testing.T) {
	t.Parallel()
	var s savedState
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.charge(2, start)
	s.charge(3, start.Add(30*time.Minute))
	for after, want := range map[time.Duration]int{0: 5, 59 * time.Minute: 5, time.Hour: 3, 89 * time.Minute: 3, 90 * time.Minute: 0} {
		if n := s.charged(start.Add(after)); n != want {
			t.Errorf("%s after the first removals, %d are charged: want %d", after, n, want)
		}
	}
	if s.charge(0, start.Add(2*time.Hour)); len(s.Removals) != 0 {
		t.Errorf("%d removals are recorded after two hours: want none", len(s.Removals))
	}
}
