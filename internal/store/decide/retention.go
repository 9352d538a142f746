package decide

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Superseded returns the newest revision of a record that need not be retained once a change of it is old; 0 if all are needed. current
// is the revision of the record now, 0 if it doesn't exist, and keep the number of revisions that are retained longer, 0 for all.
func Superseded(op tko.Op, revision, current int64, keep int) int64 {
	switch {
	case current == 0 && op == tko.OpDeleted:
		// Later revisions are of a record that was created again: at the next position, it still existed.
		return revision
	case current > 0 && keep > 0 && current > int64(keep):
		return min(current-int64(keep), revision-1)
	}
	return 0
}

// LongestPolicy returns the name of the policy that retains the changes of a deployment longest; "" if none selects it. Its template
// and site are zero if they don't exist.
func LongestPolicy(policies []record.Longer, deployment, template, site record.Record) (name string) {
	longest := time.Duration(-1)
	for i := range policies {
		if l := &policies[i]; l.Keep > longest && l.Matches(deployment, template, site) {
			name, longest = l.Name, l.Keep
		}
	}
	return name
}
