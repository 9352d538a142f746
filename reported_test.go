package tko_test

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestReportedConditionsHaveTheTimeOfTheirReport(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 123_000_000, time.FixedZone("", 3600))
	c := tko.ReportedCondition(tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy", Message: "all", ObservedRevision: 3}, at)
	if c.Message != "reported by a bundle at 2026-11-28T11:00:00.123Z: Healthy: all" || c.Reason != tko.ReasonReported {
		t.Errorf("it is %+v", c)
	}
	if got := tko.ReportedAt(&c); !got.Equal(at) {
		t.Errorf("the time is %s", got)
	}
	stamp := tko.Stamp{Revision: 3, Conditions: []tko.Condition{c}}
	if !stamp.IsReported(tko.ConditionHealthy) || stamp.IsReported(tko.ConditionScheduled) {
		t.Error("it is not the condition that was reported")
	}
	stamp.Revision = 4
	if stamp.IsReported(tko.ConditionHealthy) {
		t.Error("a newer revision is reported")
	}
	c.Reason = "Healthy"
	if got := tko.ReportedAt(&c); !got.IsZero() || !tko.ReportedAt(nil).IsZero() {
		t.Errorf("a condition that isn't from a report has the time %s", got)
	}
}

func TestSitesKeepWhatIsPreparedAgain(t *testing.T) {
	t.Parallel()
	withdrawn := tko.Stamp{Conditions: []tko.Condition{{Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: tko.ReasonApprovalWithdrawn}}}
	for name, c := range map[string]struct {
		d    tko.Deployment
		want bool
	}{
		"applied":            {tko.Deployment{Prepared: true, Approved: true}, false},
		"prepared again":     {tko.Deployment{Approved: true}, true},
		"approval withdrawn": {tko.Deployment{Prepared: true, Stamp: withdrawn}, true},
		"never approved":     {tko.Deployment{Prepared: true}, false},
	} {
		if got := c.d.StaysAtSite(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
