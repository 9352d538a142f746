package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func (w *world) changes(id tko.RolloutID) []tko.RolloutRow {
	w.t.Helper()
	var rows []tko.RolloutRow
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: id, Changes: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func TestRowsOfAGroupAreThoseWithItsChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fleet(3)
	w.create("r", upgrade)
	plan, err := w.RolloutPlan(w.ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range append(plan.Groups, tko.RolloutGroup{}) { // there is no last group
		n := 0
		for _, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "r", Group: &i}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != g.Count {
			t.Errorf("group %d of %d has %d rows, want %d", i, len(plan.Groups), n, g.Count)
		}
	}
}

func TestRowsShowTheirChangesBeforeAndAfterTheyAreApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(1)
	w.create("r", upgrade)
	planned := fmt.Sprint(w.changes("r")[0].Changes)
	if !strings.Contains(planned, `data.version "v1" "v2"`) {
		t.Errorf("the changes are %s", planned)
	}
	s := w.status("r")
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.advance("r")
	w.settle(ids...)
	w.advance("r")
	if got := fmt.Sprint(w.changes("r")[0].Changes); got != planned {
		t.Errorf("after the rollout the changes are %s", got)
	}
	w.do("r", "undo")
	if got := fmt.Sprint(w.changes("r-undo")[0]); !strings.Contains(got, `data.version "v2" "v1"`) {
		t.Errorf("the changes of the undo are %s", got)
	}
}

func TestChangesNeverShowSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := func(value string) string {
		return "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {password: " + value + "}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {n: " + fmt.Sprint("\"", len(value), "\"") + "}}"
	}
	w.template("t:v1", secret("sesame-old"))
	w.template("t:v2", secret("sesame-newer"))
	w.deploy("t:v1", "", "")
	s := w.create("r", upgrade)
	text := fmt.Sprint(w.changes("r"))
	if strings.Contains(text, "sesame") || !strings.Contains(text, "hidden") {
		t.Errorf("the changes are %s", text)
	}
	if plan, err := w.RolloutPlan(w.ctx, "r"); err != nil || strings.Contains(fmt.Sprint(plan, s), "sesame") {
		t.Errorf("%v: the plan shows a secret", err)
	}
}

// A conflict changes nothing: it isn't shown as the deletion of the whole package.
func TestConflictsAreNotShownAsRemovals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(1)
	w.edit(ids[0], set(t, `v1 ConfigMap "c"`, "mine", "data", "version"))
	w.create("r", upgrade)
	row := w.changes("r")[0]
	if row.Kind != "Conflict" || !strings.Contains(fmt.Sprint(row.Findings), "data.version") {
		t.Fatalf("got %+v, want a conflict", row)
	}
	if len(row.Changes) > 0 {
		t.Errorf("the changes of the conflict are %v, want none", row.Changes)
	}
	plan, err := w.RolloutPlan(w.ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range plan.Groups {
		if g.Kind != "Conflict" || len(g.Changes) > 0 {
			t.Errorf("the group %s has the changes %v, want none", g.Kind, g.Changes)
		}
	}
}
