package planner_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// A mistyped key protected no pair, without a warning.
func TestMistypedKeyOfApartIsRefusedWhenTheRolloutIsPlanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(4)
	s := w.create("r", apartOf("r", "  limits: {apart: [piar]}\n", `"**"`))
	if s.State != "Draft" || !strings.Contains(s.Reason, `spec.limits.apart[0]: none of the 4 sites of the plan has the metadata "piar": did you mean "pair"?`) {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
	w.site("s01", map[string]string{"piar": "0"})
	w.do("r", "plan")
	w.advance("r")
	p, err := w.RolloutPlan(w.ctx, "r")
	if err != nil || p.State != "Planned" || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], `3 sites lack the metadata "piar"`) {
		t.Errorf("%+v, %v", p, err)
	}
	if s := w.create("required", apartOf("required", "  limits: {apart: [{key: piar, required: true}]}\n", `"**"`)); s.Kinds["Invalid"] != 3 || s.Kinds["Change"] != 1 {
		t.Errorf("required: %v", s.Kinds)
	}
}

// unreported makes sites say that no target reports health, and deployments that they are
// scheduled.
func (w *world) unreported(ids ...tko.DeploymentID) {
	w.t.Helper()
	for _, id := range ids {
		d := w.deployment(id)
		conditions := []tko.Condition{
			{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Scheduled", ObservedRevision: d.Stamp.Revision},
			{Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonHealthNotReported, ObservedRevision: d.Stamp.Revision},
		}
		if err := errors.Join(w.SetConditions(w.ctx, tko.KindDeployment, string(id), conditions), w.SetConditions(w.ctx, tko.KindSite, string(d.Site), conditions)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A site that can't report health isn't taken for healthy, unless the user says so.
func TestSitesThatReportNoHealthAreAcceptedExplicitly(t *testing.T) {
	t.Parallel()
	for title, test := range map[string]struct {
		accept string // in the spec
		blind  bool
	}{"by the spec": {accept: ", none: Accept"}, "by the command": {blind: true}, "not at all": {}} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.fleet(2)
			w.unreported(ids...)
			s := w.create("r", strings.Replace(upgrade, "health: {within: 15m}", "health: {within: 15m"+test.accept+"}", 1))
			p, err := w.RolloutPlan(w.ctx, "r")
			if err != nil || p.Unreported != 2 || (len(p.Warnings) == 0) != (test.accept != "") {
				t.Errorf("%d unreported, %q, %v", p.Unreported, p.Warnings, err)
			}
			_, err = w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "start", Plan: s.Plan, Blind: test.blind})
			if test.accept == "" && !test.blind {
				if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "2 of its deployments are at sites that report no health") || !strings.Contains(err.Error(), "--blind") {
					t.Errorf("it was started: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.advance("r")
			for range 2 { // waves
				for _, id := range ids {
					if err := w.settleOne(id); err != nil {
						t.Fatal(err)
					}
				}
				w.unreported(ids...)
				w.settle()
				w.advance("r")
			}
			if s := w.status("r"); s.State != "Done" || s.Waves[1].Progress["Healthy"] != 1 {
				t.Errorf("%s: %v %v", s.State, s.Waves, s.Blocks)
			}
		})
	}
}

// An unhealthy deployment stops the rollout at once, not after within, and it goes on if the
// deployment recovers.
func TestUnhealthyDeploymentStopsTheRolloutAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(6)
	w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 2}", 1))
	w.advance("r")
	var changed []tko.DeploymentID
	for _, id := range ids {
		if w.version(id) == "v2" {
			changed = append(changed, id)
		}
	}
	if len(changed) != 2 {
		t.Fatalf("changed: %v", changed)
	}
	report := func(id tko.DeploymentID, status, reason string) {
		t.Helper()
		if err := w.settleOne(id); err != nil {
			t.Fatal(err)
		}
		d := w.deployment(id)
		if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: tko.ConditionHealthy, Status: status, Reason: reason, Message: "the image can't be pulled", ObservedRevision: d.Stamp.Revision}}); err != nil {
			t.Fatal(err)
		}
	}
	report(changed[0], tko.ConditionFalse, "Unhealthy")
	report(changed[1], tko.ConditionTrue, "Healthy")
	w.advance("r")
	s := w.status("r")
	if s.State != "Running" || s.Failing != 1 || s.Touched != 0 || s.FirstFailure.IsZero() || len(s.Blocks) == 0 || !strings.Contains(s.Blocks[0], "unhealthy or not applied") || strings.Count(w.versions(ids), "v2") != 2 {
		t.Errorf("%s: %d failing, %d touched, %v, versions %s", s.State, s.Failing, s.Touched, s.Blocks, w.versions(ids))
	}
	report(changed[0], tko.ConditionFalse, "InProgress")
	w.advance("r")
	if s := w.status("r"); s.Failing != 0 || !s.FirstFailure.IsZero() || strings.Count(w.versions(ids), "v2") != 3 {
		t.Errorf("it recovers: %d failing, %v, versions %s", s.Failing, s.Blocks, w.versions(ids))
	}
	report(changed[0], tko.ConditionTrue, "Healthy")
	w.advance("r")
	if s := w.status("r"); s.State != string(execute.Running) || strings.Count(w.versions(ids), "v2") < 4 {
		t.Errorf("it is healthy: %s %v, versions %s", s.State, s.Blocks, w.versions(ids))
	}
}
