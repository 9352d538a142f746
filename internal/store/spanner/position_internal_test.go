package spanner

import (
	"slices"
	"testing"
	"time"
)

func TestPositionsAscendWithTimeSlotAndNumber(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	places := []place{
		{epochStart, 0, 1},
		{epochStart, 3, 0},
		{at, 0, 0},
		{at, 0, perSlot - 1},
		{at, 1, 0},
		{at, slots - 1, perSlot - 1},
		{at.Add(time.Microsecond), 0, 0},
		{time.Date(2055, 1, 1, 0, 0, 0, 0, time.UTC), slots - 1, perSlot - 1},
	}
	var positions []int64
	for _, p := range places {
		positions = append(positions, p.position())
		if got := placeOf(p.position()); got != p {
			t.Errorf("%+v is decoded as %+v", p, got)
		}
	}
	if !slices.IsSorted(positions) || positions[0] <= 0 {
		t.Errorf("positions don't ascend: %d", positions)
	}
	if got := placeOf(-1); got != (place{At: epochStart}) {
		t.Errorf("a negative position is %+v", got)
	}
}

func TestSlotsOfATransactionDoNotWrap(t *testing.T) {
	t.Parallel()
	for changes, want := range map[int]int64{0: slots - 1, 1: slots - 1, perSlot: slots - 1, perSlot + 1: slots - 2, maxChanges: 0} {
		if got := firstSlot(changes, func(n int64) int64 { return n - 1 }); got != want {
			t.Errorf("the last possible slot of %d changes is %d, want %d", changes, got, want)
		}
	}
}
