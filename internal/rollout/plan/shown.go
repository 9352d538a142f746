package plan

import (
	"github.com/tko-orchestrator/tko"
)

// Shown returns the lines of a difference as users read them.
func Shown(lines []Line) []tko.RolloutChange {
	var changes []tko.RolloutChange
	for _, l := range lines {
		changes = append(changes, tko.RolloutChange(l))
	}
	return changes
}
