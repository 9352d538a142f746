package spanner

import (
	"errors"
	"strings"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
)

// The emulator takes commits beyond Spanner's limits: the store counts.
func TestLimitsOfACommit(t *testing.T) {
	t.Parallel()
	large := make([]byte, maxCommitBytes)
	tests := map[string]struct {
		why     string
		put     func(m *mutations)
		refused string
	}{
		"bytes at the limit":     {"bytes and texts count as they are, other values as 8", func(m *mutations) { m.put("t", nil, large[:maxCommitBytes-10], "xy", int64(1)) }, ""},
		"one byte more":          {"", func(m *mutations) { m.put("t", nil, large[:maxCommitBytes-9], "xy", int64(1)) }, "bytes"},
		"bytes of several rows":  {"they are those of the commit", func(m *mutations) { m.insert("t", nil, large[:60<<20]); m.update("t", nil, large[:41<<20]) }, "bytes"},
		"mutations at the limit": {"each column counts, and a removed row as one", func(m *mutations) { countTo(m, maxMutations-3); m.put("t", nil, 1, 2); m.remove("t", spanner.Key{1}) }, ""},
		"one mutation more": {"", func(m *mutations) {
			countTo(m, maxMutations-3)
			m.put("t", nil, 1, 2, 3)
			m.remove("t", spanner.Key{1})
		}, "mutations"},
	}
	for name, test := range tests {
		m := new(mutations)
		test.put(m)
		err := m.check()
		if refused := err != nil; refused != (test.refused != "") || refused && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: %v, want a refusal that names %q: %s", name, err, test.refused, test.why)
		}
	}
}

func countTo(m *mutations, n int) {
	for m.count < n {
		m.put("t", nil, 1)
	}
}
