package kubeapi

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Tools that wait for Ready must not wait for ever at sites that report no health, and must
// see that it isn't known.
func TestReadyAtASiteThatReportsNoHealth(t *testing.T) {
	t.Parallel()
	scheduled := func(revision int64) tko.Condition {
		return tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Scheduled", ObservedRevision: revision}
	}
	health := func(status, reason string, revision int64) tko.Condition {
		return tko.Condition{Type: tko.ConditionHealthy, Status: status, Reason: reason, ObservedRevision: revision}
	}
	for title, test := range map[string]struct {
		conditions []tko.Condition
		want       string
	}{
		"not reported":                       {[]tko.Condition{scheduled(2), health("Unknown", tko.ReasonHealthNotReported, 2)}, "True HealthNotReported"},
		"not reported of this revision":      {[]tko.Condition{scheduled(2), health("Unknown", tko.ReasonHealthNotReported, 1)}, "Unknown HealthNotReported"},
		"not reported, and not scheduled":    {[]tko.Condition{{Type: tko.ConditionScheduled, Status: "False", Reason: "Failed", ObservedRevision: 2}, health("Unknown", tko.ReasonHealthNotReported, 2)}, "False Failed"},
		"not reported, and another revision": {[]tko.Condition{scheduled(1), health("Unknown", tko.ReasonHealthNotReported, 1)}, "Unknown Reconciling"},
		"healthy":                            {[]tko.Condition{scheduled(2), health("True", "Healthy", 2)}, "True Ready"},
		"not reachable":                      {[]tko.Condition{scheduled(2), health("Unknown", "Unreachable", 2)}, "Unknown Unreachable"},
		"not asked":                          {[]tko.Condition{scheduled(2), health("Unknown", tko.ReasonNotAsked, 2)}, "Unknown NotAsked"},
	} {
		for kind, r := range map[tko.Kind]record.Record{
			tko.KindDeployment: {Key: record.Key{Kind: tko.KindDeployment, ID: "d"}, Prepared: true, Approved: true, Site: "s", Revision: 2},
			tko.KindSite:       {Key: record.Key{Kind: tko.KindSite, ID: "s"}, Revision: 2},
		} {
			r.Conditions = test.conditions
			ready, ok := readyOf(r)
			if got := string(ready.Status) + " " + ready.Reason; !ok || got != test.want {
				t.Errorf("%s, of a %s: %q, want %q", title, kind, got, test.want)
			}
		}
	}
}
