package form

import "time"

// The positions of stores on Spanner are the microseconds since EpochStart, shifted by PositionBits.
const PositionBits = 13

// EpochStart is the time of the position 0.
var EpochStart = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// PositionAt returns the first position of a time.
func PositionAt(t time.Time) int64 { return t.Sub(EpochStart).Microseconds() << PositionBits }
