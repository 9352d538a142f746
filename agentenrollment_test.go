package tko_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

func TestSitesAreAwayWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		condition *tko.Condition
		why       string // "": it isn't away
	}{
		"no agent": {nil, ""},
		"heard":    {new(tko.HeardCondition(now.Add(-time.Minute), now.Add(time.Second))), ""},
		"overdue":  {new(tko.HeardCondition(now.Add(-time.Minute), now)), "was not heard since 2026-11-29T11:59:00Z"},
		"silent":   {&tko.Condition{Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonNotHeard, Message: "it was not heard"}, "it was not heard"},
		"revoked":  {&tko.Condition{Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonRevoked}, `the agent of site "s" is not connected`},
		"dialled":  {&tko.Condition{Type: tko.ConditionConnected, Status: tko.ConditionUnknown, Reason: tko.ReasonNoAgent}, ""},
	} {
		var conditions []tko.Condition
		if test.condition != nil {
			conditions = []tko.Condition{*test.condition}
		}
		why, away := tko.AgentAway("s", conditions, now)
		if away != (test.why != "") || !strings.Contains(why, test.why) {
			t.Errorf("%s: %q, %t", name, why, away)
		}
	}
}

func TestAwaySinceTheAgentWasHeard(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	noticed := at.Add(10 * time.Minute)
	for name, test := range map[string]struct {
		condition tko.Condition
		want      time.Time
	}{
		"overdue": {tko.HeardCondition(at, at.Add(time.Minute)), at},
		"silent":  {tko.Condition{Reason: tko.ReasonNotHeard, Message: tko.NotHeardText("s", at), LastTransition: noticed}, at},
		"other":   {tko.Condition{Reason: tko.ReasonNotHeard, Message: "it was not heard since noon: it seems", LastTransition: noticed}, noticed},
		"revoked": {tko.Condition{Reason: tko.ReasonRevoked, LastTransition: noticed}, noticed},
		"fenced":  {tko.Condition{Reason: tko.ReasonFenced, LastTransition: noticed}, noticed},
	} {
		test.condition.Type = tko.ConditionConnected
		if got := tko.AwaySince([]tko.Condition{test.condition}); !got.Equal(test.want) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	if got := tko.AwaySince(nil); !got.IsZero() {
		t.Errorf("without a condition: %s, want none", got)
	}
}
