package tko_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestStateOfADeploymentIsItsMostUrgentCondition(t *testing.T) {
	t.Parallel()
	condition := func(typ, status, reason string) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: reason, ObservedRevision: 1}
	}
	scheduled, up := condition("Scheduled", "True", "Applied"), condition("Healthy", "True", "Healthy")
	for name, test := range map[string]struct {
		why        string
		d          tko.Deployment
		conditions []tko.Condition
		want       tko.State
	}{
		"new":                {"a preparer has not seen it", tko.Deployment{Site: "s"}, nil, tko.StateWorking},
		"preparation failed": {"a person must act, though it is tried again", tko.Deployment{}, []tko.Condition{condition("Prepared", "False", "PluginFailed")}, tko.StateFailing},
		"waits for another":  {"the other one is the problem, if there is one", tko.Deployment{}, []tko.Condition{condition("Prepared", "False", "Waiting")}, tko.StateWaiting},
		"unapproved":         {"an approver must act", tko.Deployment{Prepared: true, Site: "s"}, nil, tko.StateWaiting},
		"withdrawn":          {"it runs, and the change waits", tko.Deployment{Prepared: true, Site: "s"}, []tko.Condition{scheduled, condition("Approved", "False", tko.ReasonApprovalWithdrawn)}, tko.StateWaiting},
		"consented":          {"its children are being created", tko.Deployment{}, []tko.Condition{condition("Prepared", "False", tko.ReasonConsented)}, tko.StateWorking},
		"waits for consent":  {"a person is next", tko.Deployment{}, []tko.Condition{condition("Prepared", "False", tko.ReasonWaitsForApproval)}, tko.StateWaiting},
		"unscheduled yet":    {"the meta-scheduler is next", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, nil, tko.StateWorking},
		"unreachable":        {"its site does not respond", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{condition("Scheduled", "False", "Unreachable")}, tko.StateFailing},
		"in progress":        {"its objects come up", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled, condition("Healthy", "False", "InProgress")}, tko.StateWorking},
		"not observed":       {"no report is no failure", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled, condition("Healthy", "Unknown", "NotObserved")}, tko.StateUnknown},
		"healthy":            {"everything is as wanted", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled, up}, tko.StateHealthy},
		"without a report":   {"what a git repository has is not known to be healthy", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled, condition("Healthy", "Unknown", tko.ReasonHealthNotReported)}, tko.StateUnknown},
		"no health":          {"without a condition, nothing was reported either", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled}, tko.StateUnknown},
		"nothing scheduled":  {"there is nothing whose health could be reported", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{condition("Scheduled", "True", tko.ReasonNothingToSchedule)}, tko.StateHealthy},
		"suspended":          {"a user stopped it on purpose", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{condition("Frozen", "True", "Suspended"), condition("Scheduled", "False", "Suspended")}, tko.StateWaiting},
		"kept apart":         {"a rollout is changing a peer of its site", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{condition("Scheduled", "False", "Apart")}, tko.StateWaiting},
		"resumed":            {"the end of a suspension is no failure", tko.Deployment{Prepared: true, Approved: true, Site: "s"}, []tko.Condition{scheduled, up, condition("Frozen", "False", "Thawed")}, tko.StateHealthy},
		"topology":           {"it needs no site", tko.Deployment{Prepared: true, Approved: true}, []tko.Condition{condition("Placed", "True", "UpToDate")}, tko.StateHealthy},
		"failing and working": {
			"the most urgent one decides, in any order",
			tko.Deployment{Prepared: true, Approved: true, Site: "s"},
			[]tko.Condition{condition("Healthy", "False", "InProgress"), condition("Scheduled", "False", "Failed")},
			tko.StateFailing,
		},
	} {
		d := test.d
		d.Stamp = tko.Stamp{Revision: 1, Conditions: test.conditions}
		if got := d.Summary(); got.State != test.want {
			t.Errorf("%s: %+v, want %s (%s)", name, got, test.want, test.why)
		}
	}
	old := tko.Deployment{Prepared: true, Approved: true, Site: "s", Stamp: tko.Stamp{Revision: 2, Conditions: []tko.Condition{scheduled}}}
	if got := old.Summary(); got.State != tko.StateWorking || got.Reason != "Outdated" {
		t.Errorf("a revision that its site has not yet: %+v, want it to be working", got)
	}
}

// What was unhealthy before a rollout isn't a failure of the rollout.
func TestUnhealthyIsWhatFailsOrIsNotHealthy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		condition tko.Condition
		want      bool
	}{
		"no health yet":    {tko.Condition{Type: "Healthy", Status: "Unknown", Reason: "NotObserved"}, false},
		"healthy":          {tko.Condition{Type: "Healthy", Status: "True", Reason: "Healthy"}, false},
		"in progress":      {tko.Condition{Type: "Healthy", Status: "False", Reason: "InProgress"}, true},
		"site unreachable": {tko.Condition{Type: "Scheduled", Status: "False", Reason: "Unreachable"}, true},
		"frozen":           {tko.Condition{Type: "Scheduled", Status: "False", Reason: tko.ReasonFrozen}, false},
		"kept apart":       {tko.Condition{Type: "Scheduled", Status: "False", Reason: tko.ReasonApart}, false},
		"not approved":     {tko.Condition{Type: "Approved", Status: "False", Reason: "NotApproved"}, false},
	} {
		if got := tko.Unhealthy([]tko.Condition{test.condition}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A site's state follows the same rule as that of its deployments.
func TestStateOfASiteIsUnknownWithoutAReportOfItsHealth(t *testing.T) {
	t.Parallel()
	scheduled := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied"}
	up := tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy"}
	for name, test := range map[string]struct {
		conditions []tko.Condition
		want       tko.State
	}{
		"new":          {nil, tko.StateUnknown},
		"no health":    {[]tko.Condition{scheduled}, tko.StateUnknown},
		"not reported": {[]tko.Condition{scheduled, {Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonHealthNotReported}}, tko.StateUnknown},
		"healthy":      {[]tko.Condition{scheduled, up}, tko.StateHealthy},
	} {
		if got := (tko.Site{Stamp: tko.Stamp{Conditions: test.conditions}}).Summary(); got.State != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
}
