package service

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// Rollouts that an older version started, by which a site without reports was healthy, go on
// by that rule; others need to be asked for it.
func TestRolloutsKeepTheRuleOfTheirStart(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		state record.RolloutState
		spec  spec.Rollout
		want  bool
	}{
		"not started":                 {},
		"started by an older version": {state: record.RolloutState{Started: 7}, want: true},
		"started":                     {state: record.RolloutState{Started: 7, Rule: record.RuleOfReports}},
		"started blind":               {state: record.RolloutState{Started: 7, Rule: record.RuleOfReports, Blind: true}, want: true},
		"accepted by its spec":        {state: record.RolloutState{Started: 7, Rule: record.RuleOfReports}, spec: spec.Rollout{Health: spec.Health{AcceptNone: true}}, want: true},
	} {
		if got := test.state.AcceptsNone(test.spec); got != test.want {
			t.Errorf("%s: %t", title, got)
		}
	}
}

// What a rollout makes of the conditions of a deployment at revision 3.
func TestHealthForRolloutsFollowsFromStatementsAboutTheRevision(t *testing.T) {
	t.Parallel()
	condition := func(typ, status, reason string, revision int64) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: reason, ObservedRevision: revision}
	}
	scheduled := condition("Scheduled", "True", "Applied", 3)
	for title, test := range map[string]struct {
		conditions              []tko.Condition
		healthy, blind, failing bool
	}{
		"nothing":                     {},
		"healthy":                     {conditions: []tko.Condition{scheduled, condition("Healthy", "True", "Healthy", 3)}, healthy: true, blind: true},
		"healthy as it was":           {conditions: []tko.Condition{scheduled, condition("Healthy", "True", "Healthy", 2)}},
		"scheduled as it was":         {conditions: []tko.Condition{condition("Scheduled", "True", "Applied", 2), condition("Healthy", "True", "Healthy", 3)}},
		"no reports":                  {conditions: []tko.Condition{scheduled, condition("Healthy", "Unknown", "HealthNotReported", 3)}, blind: true},
		"no condition of health":      {conditions: []tko.Condition{scheduled}, blind: true},
		"nothing for the site":        {conditions: []tko.Condition{condition("Scheduled", "True", "NothingToSchedule", 3), condition("Healthy", "Unknown", "HealthNotReported", 3)}, healthy: true, blind: true},
		"unhealthy":                   {conditions: []tko.Condition{scheduled, condition("Healthy", "False", "Unhealthy", 3)}, failing: true},
		"unhealthy as it was":         {conditions: []tko.Condition{scheduled, condition("Healthy", "False", "Unhealthy", 2)}},
		"in progress":                 {conditions: []tko.Condition{scheduled, condition("Healthy", "False", "InProgress", 3)}},
		"not asked":                   {conditions: []tko.Condition{condition("Scheduled", "Unknown", "NotAsked", 3), condition("Healthy", "Unknown", "NotAsked", 3)}},
		"invalid":                     {conditions: []tko.Condition{condition("Scheduled", "False", "Invalid", 3)}, failing: true},
		"failed to apply":             {conditions: []tko.Condition{condition("Scheduled", "False", "Failed", 3)}, failing: true},
		"failed, because it's away":   {conditions: []tko.Condition{condition("Scheduled", "False", "Failed", 3), condition("Healthy", "Unknown", "Unreachable", 3)}},
		"waits":                       {conditions: []tko.Condition{condition("Scheduled", "False", "Waiting", 3)}},
		"frozen":                      {conditions: []tko.Condition{condition("Scheduled", "False", tko.ReasonFrozen, 3)}},
		"waits for sharers":           {conditions: []tko.Condition{condition("Scheduled", "False", tko.ReasonWaitsForSharers, 3)}},
		"drifted":                     {conditions: []tko.Condition{condition("Scheduled", "False", "Drifted", 3)}},
		"could not be prepared again": {conditions: []tko.Condition{condition("Prepared", "False", "Failed", 3)}, failing: true},
	} {
		r := record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "d"}, Prepared: true, Approved: true, Site: "s", Revision: 3, Conditions: test.conditions}
		healthy, why := healthOf(r, false)
		blind, _ := healthOf(r, true)
		if healthy != test.healthy || blind != test.blind || !healthy && why == "" {
			t.Errorf("%s: %t (%s), blind %t", title, healthy, why, blind)
		}
		if got := tko.Failing(r.Conditions, r.Revision); got != test.failing {
			t.Errorf("%s: failing is %t", title, got)
		}
	}
}
