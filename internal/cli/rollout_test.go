package cli

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// A second run of the same command, such as that of a script after a timeout, must not
// approve the next wave.
func TestSecondApprovalOfARolloutApprovesNothingMore(t *testing.T) {
	t.Parallel()
	waves := func(first string, firstWaits, firstSoaks int) tko.RolloutStatus {
		return tko.RolloutStatus{ID: "r", Waves: []tko.RolloutWave{
			{Name: "canary", Rows: 2, Approval: first, Progress: map[string]int{"Waiting": firstWaits, "Soaking": firstSoaks}},
			{Name: "rest", Rows: 5, Approval: "Required", Progress: map[string]int{"Waiting": 5}},
		}}
	}
	tests := map[string]struct {
		status tko.RolloutStatus
		wave   string
		err    string
	}{
		"the first":                   {waves("Required", 2, 0), "", ""},
		"the first, by name":          {waves("Required", 2, 0), "canary", ""},
		"the second in place of it":   {waves("Required", 2, 0), "rest", `the next wave to approve is "canary", not "rest"`},
		"while the first waits":       {waves("by a", 2, 0), "", `the wave "canary" is approved already, and in progress`},
		"while the first soaks":       {waves("by a", 0, 1), "", "use --wave rest"},
		"the first again, by name":    {waves("by a", 0, 1), "canary", `the next wave to approve is "rest", not "canary"`},
		"in advance, by name":         {waves("by a", 0, 1), "rest", ""},
		"after the first":             {waves("by a", 0, 0), "", ""},
		"after one without approval":  {waves("", 2, 0), "", ""},
		"of a rollout without a wave": {tko.RolloutStatus{ID: "r"}, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch err := approvable(test.status, test.wave); {
			case test.err == "" && err != nil, test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}
