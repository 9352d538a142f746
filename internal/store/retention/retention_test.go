package retention

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/record"
)

// A policy retains changes for its time, counted from when the collection began; one that
// is gone, or shorter, retains what all others are retained for.
func TestCutoffOfPolicyIsItsTimeAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	keep := record.Retention{Changes: 24 * time.Hour, Longer: []record.Longer{{Name: "month", Keep: 30 * 24 * time.Hour}, {Name: "hour", Keep: time.Hour}}}
	c := &collection{keep: keep, cutoff: now.Add(-keep.Changes).UnixMicro()}
	for policy, ago := range map[string]time.Duration{"": keep.Changes, "gone": keep.Changes, "month": 30 * 24 * time.Hour, "hour": keep.Changes} {
		if got, want := time.UnixMicro(c.cutoffOf(policy)), now.Add(-ago); !got.Equal(want) {
			t.Errorf("policy %q retains changes since %s, want %s", policy, got, want)
		}
	}
}

// The prefix of a digest may be that of several: then content is retained that could be
// removed, never the other way.
func TestPrefixOfDigestIsThatOfItsBytes(t *testing.T) {
	t.Parallel()
	a, b := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{1, 2, 3, 4, 5, 6, 7, 8, 10}
	if digestPrefix(a) != digestPrefix(b) || digestPrefix(a) != 0x0102030405060708 {
		t.Errorf("%x, %x", digestPrefix(a), digestPrefix(b))
	}
	if digestPrefix(a[1:]) == digestPrefix(a) || digestPrefix(a[:7]) != 0 || digestPrefix(nil) != 0 {
		t.Error("digests that differ have one prefix, or one that is too short has any")
	}
}
