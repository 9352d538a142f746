package form

import "time"

// PositionBits is by how many bits the positions of stores on Spanner are shifted: they are the microseconds since EpochStart.
const PositionBits = 13

// EpochStart is the time of the position 0.
var EpochStart = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// PositionAt returns the first position of a time.
func PositionAt(t time.Time) int64 { return t.Sub(EpochStart).Microseconds() << PositionBits }
