package planner_test

import (
	"fmt"
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

const restoring = "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {restore: {asOf: %d, select: {deploymentIds: [%s]}}}\n"

// A deleted topology comes back with all its descendants, in one rollout.
func TestRestoredTopologyHasItsDescendantsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site("s", nil)
	create := func(parent tko.DeploymentID) tko.DeploymentID {
		id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Parent: parent, Site: "s", Prepared: true, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	top := create("")
	child, other := create(top), create(top)
	grandchild := create(child)
	about, err := w.Position(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteDeployment(w.ctx, top); err != nil {
		t.Fatal(err)
	}
	status := w.create("back", fmt.Sprintf(restoring, about, top))
	if status.Kinds["Create"] != 4 {
		t.Fatalf("the plan is %+v", status.Kinds)
	}
	w.do("back", "start", func(c *tko.RolloutCommand) { c.Plan = status.Plan })
	for range 10 {
		w.advance("back")
	}
	for id, parent := range map[tko.DeploymentID]tko.DeploymentID{top: "", child: top, other: top, grandchild: child} {
		if d := w.deployment(id); d.Parent != parent {
			t.Errorf("%q has the parent %q, want %q", id, d.Parent, parent)
		}
	}
}

// A restore doesn't wait for sites without a target, to which nothing can be delivered.
func TestRestoreWaitsForNothingAtSitesWithoutATarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.site("s", nil)
	id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Site: "s", Prepared: true, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	position, err := w.Position(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteDeployment(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	status := w.create("back", fmt.Sprintf(restoring, position, id))
	w.do("back", "start", func(c *tko.RolloutCommand) { c.Plan = status.Plan })
	w.advance("back")
	revision := w.deployment(id).Stamp.Revision
	if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{{
		Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: tko.ReasonNoScheduler, ObservedRevision: revision,
	}}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.advance("back")
	}
	if s := w.status("back"); s.Waves[0].Progress["Applied"] > 0 {
		t.Errorf("it waits: %+v", s)
	}
}
