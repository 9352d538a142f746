package planner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// What a rollout didn't break is no failure of it: a site that was unreachable before it is
// unreachable after it.
func TestDeploymentThatWasUnhealthyBeforeIsNoFailureOfTheRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	fails := func(id tko.DeploymentID) {
		t.Helper()
		if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{{
			Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Unreachable", Message: "the site does not respond", ObservedRevision: w.deployment(id).Stamp.Revision,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	fails(ids[0])
	w.started("r", strings.NewReplacer("waves: [{name: canary, count: 1}, {name: rest}]", "onFailure: Continue", "within: 15m", "within: 1s").Replace(upgrade))
	fails(ids[0])
	fails(ids[1])
	eventually.True(t, "both have had their time", func() bool {
		time.Sleep(100 * time.Millisecond)
		w.advance("r")
		s := w.status("r")
		return s.Waves[0].Progress["AsBefore"]+s.Waves[0].Progress["Failed"] == 2
	})
	if s := w.status("r"); s.Waves[0].Progress["AsBefore"] != 1 || s.Failures != 1 {
		t.Errorf("%+v", s)
	}
}

// A client that reads the status after a change must not take the former plan for the new one.
func TestStatusIsPlanningFromTheChangeOfAPlannedRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(2)
	before := w.create("r", upgrade)
	if before.State != "Planned" || before.Plan == "" {
		t.Fatalf("%+v", before)
	}
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "r", Package: decode(t, strings.Replace(upgrade, "count: 1", "count: 2", 1))}); err != nil {
		t.Fatal(err)
	}
	if s := w.status("r"); s.State != "Planning" || s.Plan != "" {
		t.Errorf("the state is %s with plan %q", s.State, s.Plan)
	}
	w.advance("r")
	if s := w.status("r"); s.State != "Planned" || s.Plan == before.Plan || s.Waves[0].Rows != 2 {
		t.Errorf("planned again: %+v", s)
	}
}
