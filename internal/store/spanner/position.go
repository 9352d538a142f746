package spanner

import (
	"hash/fnv"
	"time"

	"github.com/tko-orchestrator/tko/internal/store/form"
)

// Each position of the log is unique, and positions ascend in the order of commits: a position
// is the commit timestamp in microseconds since [epochStart], the slot, and the number of the
// change in its slot. Commit timestamps alone are not unique, since transactions that touch
// different rows may get the same one; the slot is also the first column of the log's key, which
// is what keeps writers apart, and two transactions with the same slot and timestamp collide on
// that key.
const (
	slotBits   = 7
	numberBits = 6
	slots      = 1 << slotBits
	perSlot    = 1 << numberBits
	// maxChanges is the maximum number of changes of one commit.
	maxChanges = slots * perSlot
)

// epochStart is the time of the position 0. Positions last until 2055.
var epochStart = form.EpochStart

// Archives of other stores continue these positions.
var _ = [1]struct{}{}[form.PositionBits-slotBits-numberBits]

// A place is a decoded position.
type place struct {
	At   time.Time // commit timestamp
	Slot int64     // 0 to slots-1
	N    int64     // 0 to perSlot-1
}

func (p place) position() int64 {
	return form.PositionAt(p.At) | p.Slot<<numberBits | p.N
}

// placeOf decodes a position. A negative one is before all changes.
func placeOf(position int64) place {
	position = max(0, position)
	return place{
		At:   epochStart.Add(time.Duration(position>>(slotBits+numberBits)) * time.Microsecond),
		Slot: position >> numberBits & (slots - 1),
		N:    position & (perSlot - 1),
	}
}

// firstSlot returns the slot at which a transaction with a number of changes begins, so that its
// slots ascend: random selects among those from which it doesn't wrap.
func firstSlot(changes int, random func(n int64) int64) int64 {
	return random(int64(slots - (max(1, changes)+perSlot-1)/perSlot + 1))
}

// shards is the number of ranges over which rows spread by their IDs.
const shards = 128

// shardOf returns the first column of the keys of a record.
func shardOf(id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return int64(h.Sum64() % shards)
}
