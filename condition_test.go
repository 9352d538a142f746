package tko_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestConditionsAreFoundByType(t *testing.T) {
	t.Parallel()
	conditions := []tko.Condition{
		{Type: "Ready", Status: tko.ConditionFalse, Reason: "Why"},
		{Type: "Healthy", Status: tko.ConditionTrue},
	}
	if got := tko.FindCondition(conditions, "Healthy"); got != &conditions[1] {
		t.Errorf("FindCondition returned %v, want the element of the slice", got)
	}
	if got := tko.FindCondition(conditions, "Other"); got != nil {
		t.Errorf("FindCondition of a type that is missing returned %v", got)
	}
	if got := tko.ConditionIs(conditions, "Ready") + tko.ConditionIs(conditions, "Other"); got != tko.ConditionFalse {
		t.Errorf("ConditionIs returned %q", got)
	}
	for _, c := range []struct {
		typ     string
		reasons []string
		want    bool
	}{
		{"Ready", nil, true},
		{"Ready", []string{"Other", "Why"}, true},
		{"Ready", []string{"Other"}, false},
		{"Other", nil, false},
		{"Other", []string{"Why"}, false},
	} {
		if got := tko.HasCondition(conditions, c.typ, c.reasons...); got != c.want {
			t.Errorf("HasCondition(%s, %q) = %t", c.typ, c.reasons, got)
		}
	}
}

func TestMergedConditionKeepsItsTransitionUntilTheStatusChanges(t *testing.T) {
	t.Parallel()
	then, now := time.Unix(1, 0), time.Unix(2, 0)
	before := []tko.Condition{
		{Type: "B", Status: tko.ConditionTrue, LastTransition: then},
		{Type: "C", Status: tko.ConditionTrue, LastTransition: then},
	}
	got := tko.MergeConditions(before,
		tko.Condition{Type: "C", Status: tko.ConditionFalse, LastTransition: now},
		tko.Condition{Type: "B", Status: tko.ConditionTrue, Reason: "New", LastTransition: now},
		tko.Condition{Type: "A", Status: tko.ConditionUnknown, LastTransition: now},
	)
	want := []tko.Condition{
		{Type: "A", Status: tko.ConditionUnknown, LastTransition: now},
		{Type: "B", Status: tko.ConditionTrue, Reason: "New", LastTransition: then},
		{Type: "C", Status: tko.ConditionFalse, LastTransition: now},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[2:], tko.WithoutCondition(got[1:], "B")); diff != "" {
		t.Error(diff)
	}
	if before[0].Reason != "" || before[1].Status != tko.ConditionTrue || got[1].Type != "B" {
		t.Errorf("the arguments have changed: %v, %v", before, got)
	}
}
