package relational

import (
	"testing"
	"time"
)

func TestTimesOfChangesAreInTheirOrder(t *testing.T) {
	t.Parallel()
	newest := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	tests := map[string]struct {
		why            string
		database, want time.Time
	}{
		"later":    {"the time goes on", newest.Add(time.Millisecond), newest.Add(time.Millisecond)},
		"equal":    {"equal times have no order", newest, newest.Add(time.Microsecond)},
		"earlier":  {"the time of the change before was an estimate", newest.Add(-time.Millisecond), newest.Add(time.Microsecond)},
		"set back": {"the clock was set back", newest.Add(-clockStep), newest.Add(-clockStep)},
	}
	for name, test := range tests {
		cc := &commitCache{newest: newest}
		if got := cc.timeOf(test.database); !got.Equal(test.want) {
			t.Errorf("%s: %s, want %s: %s", name, got, test.want, test.why)
		}
	}
}
