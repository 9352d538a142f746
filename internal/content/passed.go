package content

import (
	"slices"

	"github.com/tko-orchestrator/tko/internal/record"
)

// PassedOf returns the metadata that must be passed so that the complete
// metadata is as wanted.
func PassedOf(current record.Record, wanted map[string]string) map[string]string {
	before, had := current.Passed(), current.Effective()
	passed := map[string]string{}
	for key, value := range wanted {
		_, mine := before[key]
		if is, there := had[key]; mine || !there || is != value {
			passed[key] = value
		}
	}
	return passed
}

// RemovedOf returns the removed keys of metadata: the earlier and the new ones,
// without those that are wanted again.
func RemovedOf(current record.Record, more []string, wanted map[string]string) []string {
	var removed []string
	for _, key := range slices.Concat(current.Removed(), more) {
		if _, again := wanted[key]; !again && !slices.Contains(removed, key) {
			removed = append(removed, key)
		}
	}
	return removed
}
