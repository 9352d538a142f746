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

func TestReportsAreComparedWithoutTheirTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	c := tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy", Message: "all", ObservedRevision: 3}
	first := tko.AgentCondition(c, at)
	if first.Message != "reported by its agent at 2026-11-28T12:00:00.000Z: all" || first.Reason != "Healthy" || !tko.ReportedAt(&first).Equal(at) {
		t.Errorf("it is %+v", first)
	}
	if !tko.SameReport(first, tko.AgentCondition(c, at.Add(time.Hour))) {
		t.Error("a later report of the same is another one")
	}
	for name, change := range map[string]func(*tko.Condition){
		"status": func(c *tko.Condition) { c.Status = tko.ConditionFalse }, "reason": func(c *tko.Condition) { c.Reason = "Other" },
		"message": func(c *tko.Condition) { c.Message = "none" }, "revision": func(c *tko.Condition) { c.ObservedRevision = 4 },
	} {
		other := c
		change(&other)
		if tko.SameReport(first, tko.AgentCondition(other, at)) {
			t.Errorf("a report with another %s is the same", name)
		}
	}
	if tko.SameReport(first, tko.ReportedCondition(c, at)) || tko.SameReport(c, c) {
		t.Error("reports of other ways are the same")
	}
}

func TestHeardConditionStatesItsTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.FixedZone("", 3600))
	c := tko.HeardCondition(at, at.Add(time.Minute))
	if got, by, ok := tko.HeardAt(&c); !ok || !got.Equal(at) || !by.Equal(at.Add(time.Minute)) {
		t.Errorf("it is %s, %s, %v of %+v", got, by, ok, c)
	}
	c.Message = "something else"
	if _, _, ok := tko.HeardAt(&c); ok {
		t.Error("another message has times")
	}
	if _, _, ok := tko.HeardAt(nil); ok {
		t.Error("no condition has times")
	}
}
