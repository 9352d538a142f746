package cli

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestWaitForARolloutSaysWhatADeploymentLacks(t *testing.T) {
	t.Parallel()
	condition := func(typ, status string, revision int64) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: "Failed", Message: "why", ObservedRevision: revision}
	}
	tests := map[string]struct {
		prepared, approved bool
		site               tko.SiteID
		conditions         []tko.Condition
		want               string
	}{
		"no preparer":            {want: "role preparer runs"},
		"not prepared":           {conditions: []tko.Condition{condition(tko.ConditionPrepared, tko.ConditionFalse, 2)}, want: "is not prepared: Failed: why"},
		"not approved":           {prepared: true, site: "s", want: "tko deployment approve d"},
		"of no site":             {prepared: true, approved: true},
		"no meta-scheduler":      {prepared: true, approved: true, site: "s", want: `not scheduled at site "s" yet: check that a server with the role meta-scheduler runs`},
		"an old revision":        {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 1)}, want: "role meta-scheduler runs"},
		"not scheduled":          {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionFalse, 2)}, want: `is not scheduled at site "s": Failed: why`},
		"scheduled":              {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2)}},
		"no report of health":    {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionTrue, 1)}, want: "has not reported its health yet"},
		"unhealthy":              {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionFalse, 2)}, want: `is not healthy at site "s": Failed: why`},
		"scheduled, and healthy": {prepared: true, approved: true, site: "s", conditions: []tko.Condition{condition(tko.ConditionScheduled, tko.ConditionTrue, 2), condition(tko.ConditionHealthy, tko.ConditionTrue, 2)}},
	}
	for name, test := range tests {
		d := tko.Deployment{ID: "d", Prepared: test.prepared, Approved: test.approved, Site: test.site, Stamp: tko.Stamp{Revision: 2, Conditions: test.conditions}}
		if got := heldUp(d); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
