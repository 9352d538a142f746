package condition

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestTransitionTimeChangesOnlyWithTheStatus(t *testing.T) {
	t.Parallel()
	then, now := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	current := []tko.Condition{
		{Type: "Healthy", Status: "True", Reason: "Fine", LastTransition: then, ObservedRevision: 1},
		{Type: "Prepared", Status: "False", Reason: "Waiting", LastTransition: then, ObservedRevision: 1},
	}
	got := Merge(current, []tko.Condition{
		{Type: "Prepared", Status: "False", Reason: "Failed", Message: "bad \xff\x00"},
		{Type: "Approved", Status: "True", ObservedRevision: 3},
	}, 5, now)
	want := []tko.Condition{
		{Type: "Approved", Status: "True", LastTransition: now, ObservedRevision: 3},
		current[0],
		{Type: "Prepared", Status: "False", Reason: "Failed", Message: "bad \uFFFD\uFFFD", LastTransition: then, ObservedRevision: 5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("others stay, the time moves with the status only (-want +got):\n%s", diff)
	}
	if current[1].Reason != "Waiting" {
		t.Error("the conditions that were given changed: they belong to a record")
	}
}

func TestConditionsNeverContradictTheFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why                string
		current            []tko.Condition
		prepared, approved bool
		want               []string
	}{
		"new and unprepared":     {why: "flags that were never set are not reported"},
		"prepared":               {why: "a flag that is set is reported", prepared: true, want: []string{"Prepared True"}},
		"no longer prepared":     {why: "a condition must not contradict the entity", current: []tko.Condition{{Type: "Prepared", Status: "True"}}, want: []string{"Prepared False"}},
		"failed":                 {why: "the reason why it isn't prepared stays", current: []tko.Condition{{Type: "Prepared", Status: "False", Reason: "PluginFailed"}}},
		"said already":           {why: "nothing changes", current: []tko.Condition{{Type: "Prepared", Status: "True", Reason: "ByMe"}}, prepared: true},
		"approved, not prepared": {why: "each follows its own flag", approved: true, want: []string{"Approved True"}},
	}
	for name, test := range tests {
		var got []string
		for _, c := range OfFlags(test.current, test.prepared, test.approved) {
			got = append(got, c.Type+" "+c.Status)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, test.why, diff)
		}
	}
}

// The meta-scheduler says that nothing was reported of what it has read a moment before.
func TestReportsOfAgentsAreNotReplacedByTheStatementThatThereIsNone(t *testing.T) {
	t.Parallel()
	report := tko.ReportedCondition(tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied", ObservedRevision: 3}, time.Now())
	none := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionUnknown, Reason: tko.ReasonByAgent, ObservedRevision: 3}
	other := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Failed", ObservedRevision: 3}
	silent := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionUnknown, Reason: tko.ReasonNotHeard, ObservedRevision: 3}
	for name, test := range map[string]struct {
		revision int64 // of the entity now
		before   []tko.Condition
		changed  tko.Condition
		heard    bool // the agent is heard now
		want     int
	}{
		"a report of the revision stays":      {3, []tko.Condition{report}, none, true, 0},
		"that of an earlier one doesn't":      {4, []tko.Condition{report}, none, true, 1},
		"nothing was reported":                {3, nil, none, true, 1},
		"other statements replace it":         {3, []tko.Condition{report}, other, true, 1},
		"the agent is heard again":            {3, []tko.Condition{report}, silent, true, 0},
		"it is heard, and nothing reported":   {3, nil, silent, true, 0},
		"nothing is healthy from memory":      {3, []tko.Condition{report}, silent, false, 1},
		"a report stays if it is silent, too": {3, []tko.Condition{report}, none, false, 0},
	} {
		if got := Timely(tko.Stamp{Revision: test.revision, Conditions: test.before}, []tko.Condition{test.changed}, test.heard); len(got) != test.want {
			t.Errorf("%s: the conditions that change are %+v", name, got)
		}
	}
}
