package planner_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
)

// applying is a topology whose placement follows the sites.
func applying(region string, templates ...string) string {
	return strings.Replace(topology(region, templates...), "kind: Placement, metadata: {name: p}, spec: {", "kind: Placement, metadata: {name: p}, spec: {update: Apply, ", 1)
}

// review prepares a deployment whose work was enqueued, and reports whether it was.
func (w *world) review(id tko.DeploymentID) (enqueued bool) {
	w.t.Helper()
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1000, Lease: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	w.preparer = prepare.New(client{w.Service}, w.plugins, prepare.Options{}) // without a pause after the last review
	for _, item := range items {
		enqueued = enqueued || item.Key == string(id)
		result := w.preparer.Prepare(w.ctx, item)
		if result.Err != nil {
			w.t.Fatal(item.Key, result.Err)
		}
		if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item, Outcome: tko.WorkDone}}); err != nil {
			w.t.Fatal(err)
		}
	}
	return enqueued
}

// placed returns the sites of the children of a deployment, and its Placed condition.
func (w *world) placed(id tko.DeploymentID) (sites string, placed tko.Condition) {
	w.t.Helper()
	var all []string
	for child, err := range w.Deployments(w.ctx, tko.DeploymentSelect{Parent: id}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, string(child.Site))
	}
	for _, c := range w.deployment(id).Stamp.Conditions {
		if c.Type == tko.ConditionPlaced {
			placed = c
		}
	}
	slices.Sort(all)
	return strings.Join(all, " "), placed
}

func TestPlacementDoesNotRecreateWhatARolloutDeletedWhileItCanBeUndone(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"deleted", "undone"} {
		w := newWorld(t)
		w.regions()
		w.template("cu:v1", config("cu", `x: "1"`))
		w.template("ran", applying("north", "cu:v1"))
		id := w.deploy("ran", "", "")
		w.review(id)
		if sites, _ := w.placed(id); sites != "north-1 north-2" {
			t.Fatal(sites)
		}
		w.settle(w.all()...)
		w.started("r", "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  edits: [{delete: {}, select: {siteIdPatterns: [north-1]}}]\n")
		w.settle(w.all()...)
		w.advance("r")
		if s := w.status("r"); s.State != "Done" {
			t.Fatalf("%+v", s)
		}
		w.review(id)
		w.prepare(id)
		sites, c := w.placed(id)
		if sites != "north-2" || !strings.Contains(c.Message, `rollout "r" deleted them and can be undone`) {
			t.Errorf("children at %q, condition %+v", sites, c)
		}
		if end == "deleted" {
			if err := w.DeleteRollout(w.ctx, "r"); err != nil {
				t.Fatal(err)
			}
		} else {
			w.do("r", "undo")
			for range 3 {
				w.advance("r-undo")
				w.settle(w.all()...)
			}
			w.advance("r-undo")
			w.advance("r")
			if s := w.status("r"); s.State != "Undone" {
				t.Fatalf("%+v", s)
			}
		}
		if !w.review(id) {
			t.Errorf("%s: the placement isn't evaluated again", end)
		}
		if sites, c := w.placed(id); !strings.Contains(sites, "north-1") || strings.Contains(c.Message, "rollout") {
			t.Errorf("%s: children at %q, condition %+v", end, sites, c)
		}
	}
}

const waved = "update: Apply, rollout: {waves: [{name: first, count: 1}, {name: rest}], limits: {concurrent: 1}}, "

func TestPlacementWithARolloutPlansChangesInsteadOfMakingThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.regions()
	w.template("cu:v1", config("cu", `x: "1"`))
	w.template("ran", strings.Replace(applying("north", "cu:v1"), "update: Apply, ", waved, 1))
	id := w.deploy("ran", "", "")
	w.review(id)
	first := tko.RolloutID("")
	for r, err := range w.Rollouts(w.ctx, tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		first = r.ID
	}
	sites, c := w.placed(id)
	if sites != "" || first == "" || !strings.Contains(c.Message, string(first)) {
		t.Fatalf("children at %q, rollout %q, condition %+v", sites, first, c)
	}
	evaluate := func() {
		w.review(id)
		w.preparer = prepare.New(client{w.Service}, w.plugins, prepare.Options{})
		w.prepare(id)
	}
	finish := func(rollout tko.RolloutID) {
		t.Helper()
		w.advance(rollout)
		s := w.status(rollout)
		if s.State != "Planned" {
			t.Fatalf("%s: %+v", rollout, s)
		}
		w.do(rollout, "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
		for range 6 {
			w.advance(rollout)
			w.settle(w.all()...)
		}
		w.advance(rollout)
		if s := w.status(rollout); s.State != "Done" {
			t.Fatalf("%s: %+v", rollout, s)
		}
	}
	finish(first)
	evaluate()
	if sites, c := w.placed(id); sites != "north-1 north-2" || c.Status != tko.ConditionTrue {
		t.Fatalf("children at %q, %+v", sites, c)
	}
	// One site is relabelled, another one is new: one goes, one comes, both planned.
	w.site("north-1", map[string]string{"region": "south"})
	w.site("north-3", map[string]string{"region": "north"})
	evaluate()
	evaluate() // changes nothing
	second := first + "-2"
	if sites, c := w.placed(id); sites != "north-1 north-2" || !strings.Contains(c.Message, string(second)) {
		t.Fatalf("children at %q, %+v", sites, c)
	}
	w.advance(second)
	if s := w.status(second); s.Kinds["Create"] != 1 || s.Kinds["Delete"] != 1 {
		t.Fatalf("%+v", s)
	}
	w.site("north-4", map[string]string{"region": "north"})
	evaluate()
	w.advance(second)
	if s := w.status(second); s.State != "Planned" || s.Kinds["Create"] != 2 {
		t.Fatalf("it isn't planned again after another site came: %+v", s)
	}
	finish(second)
	if sites, _ := w.placed(id); sites != "north-2 north-3 north-4" {
		t.Fatal(sites)
	}
	w.do(second, "undo")
	for range 6 {
		w.advance(second + "-undo")
		w.settle(w.all()...)
	}
	w.advance(second + "-undo")
	w.advance(second)
	if sites, _ := w.placed(id); sites != "north-1 north-2" {
		t.Fatalf("after the undo: %s, %+v", sites, w.status(second+"-undo"))
	}
	evaluate()
	if sites, c := w.placed(id); sites != "north-1 north-2" || !strings.Contains(c.Message, "Undone") {
		t.Fatalf("an undone change is made again: %s, %+v", sites, c)
	}
}
