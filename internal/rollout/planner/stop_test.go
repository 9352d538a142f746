package planner_test

import (
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestRolloutsStandStillWhereTheyAreStopped(t *testing.T) {
	t.Parallel()
	for what, stopOf := range map[string]func(ids []tko.DeploymentID) tko.Stop{
		"metadata": func([]tko.DeploymentID) tko.Stop { return tko.Stop{SiteMetadata: map[string]string{"pair": "0"}} },
		"topology": func(ids []tko.DeploymentID) tko.Stop { return tko.Stop{Topology: ids[0]} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.fleet(4) // in pairs
			stop := stopOf(ids)
			stop.Reason = "storm"
			status, err := w.Stop(w.ctx, stop)
			if err != nil {
				t.Fatal(err)
			}
			w.started("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
			for range 3 {
				w.settle(ids...)
				w.advance("r")
			}
			want := map[string]string{"metadata": "v1 v1 v2 v2", "topology": "v1 v2 v2 v2"}[what]
			if got := w.versions(ids); got != want {
				t.Errorf("versions %s, want %s: %+v", got, want, w.status("r"))
			}
			if text := strings.Join(w.status("r").Blocks, "; "); !strings.Contains(text, "storm") || !strings.Contains(text, "tko resume "+status.Stop.ID) {
				t.Errorf("the status doesn't say what it waits for: %q", text)
			}
			if _, err := w.Resume(w.ctx, tko.Release{ID: status.Stop.ID}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.advance("r")
				w.settle(ids...)
			}
			if got := w.versions(ids); got != "v2 v2 v2 v2" {
				t.Errorf("after the stop: %s", got)
			}
		})
	}
}

func TestStopDuringAnAdmissionHoldsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	s := w.create("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.planner.meanwhile = func() { // the executor has decided what to apply, and hasn't committed it
		w.planner.meanwhile = nil
		if _, err := w.Stop(w.ctx, tko.Stop{All: true, Reason: "storm"}); err != nil {
			t.Error(err)
		}
	}
	w.advance("r")
	if w.planner.meanwhile != nil {
		t.Error("the executor applied nothing")
	}
	if got := w.versions(ids); got != "v1 v1" {
		t.Errorf("versions %s", got)
	}
}

// With resume --only-undo, an undo goes on, and nothing else does.
func TestOnlyUndosGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	w.started("r", strings.Replace(upgrade, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
	w.advance("r")
	if got := w.versions(ids); got != "v2 v2" {
		t.Fatalf("versions %s", got)
	}
	status, err := w.Stop(w.ctx, tko.Stop{All: true, Reason: "storm"})
	if err != nil {
		t.Fatal(err)
	}
	w.do("r", "undo", func(*tko.RolloutCommand) {})
	w.advance("r")
	w.advance("r-undo")
	if got := w.versions(ids); got != "v2 v2" {
		t.Errorf("an undo went on while everything was stopped: %s", got)
	}
	released, err := w.Resume(w.ctx, tko.Release{ID: status.Stop.ID, OnlyUndo: true})
	if err != nil || !released.Stop.OnlyUndo {
		t.Fatalf("%+v, %v", released, err)
	}
	w.advance("r-undo")
	if got := w.versions(ids); got != "v1 v1" {
		t.Errorf("the undo doesn't go on: %s, %+v", got, w.status("r-undo"))
	}
	site := w.deployment(ids[0]).Site
	if held, err := w.SiteStop(w.ctx, site); err != nil || held.Whole || len(held.Held) != 1 || held.Held[0] != tko.OtherDeployments {
		t.Errorf("what is undone isn't delivered: %+v, %v", held, err)
	}
	if _, err := w.DeleteDeployment(w.ctx, ids[0]); err == nil || !strings.Contains(err.Error(), "storm") {
		t.Errorf("other changes go on: %v", err)
	}
	if again, err := w.Stop(w.ctx, tko.Stop{All: true, Reason: "storm"}); err != nil || again.Stop.OnlyUndo || again.Stop.ID != status.Stop.ID {
		t.Errorf("stopped again: %+v, %v", again, err)
	}
}
