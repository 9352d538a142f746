package planner_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A transactions observer counts the transactions and single statements of a store.
type transactions struct{ count atomic.Int64 }

func (t *transactions) Transaction(string, time.Duration) { t.count.Add(1) }
func (*transactions) Committed(int, bool)                 {}
func (*transactions) Conflicted()                         {}
func (*transactions) Failed(string)                       {}

// transactionsOf returns how many transactions and single statements something takes.
func (w *world) transactionsOf(do func()) int64 {
	w.t.Helper()
	store, ok := w.counted.Store.(interface{ Observe(o relational.Observer) })
	if !ok {
		w.t.Fatal("the store has no observer")
	}
	var t transactions
	store.Observe(&t)
	do()
	return t.count.Load()
}

// cost is what the steps of a rollout of n deployments take. edits are those of its spec.
func cost(t *testing.T, n int, edits string) map[string]int64 {
	t.Helper()
	w := newWorld(t)
	ids := w.fleet(n)
	text := "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  edits: [" + edits + "]\n  limits: {concurrent: 10000}\n  health: {soak: 1h}\n"
	if strings.Contains(edits, "logging") {
		text += "---\n" + config("logging", "level: debug")
	}
	steps, s := map[string]int64{}, tko.RolloutStatus{}
	steps["plan"] = w.transactionsOf(func() { s = w.create("r", text) })
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	advance := func(step string, id tko.RolloutID, progress string) {
		steps[step] = w.transactionsOf(func() {
			if _, err := w.AdvanceRollout(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		})
		if s := w.status(id); s.Waves[0].Progress[progress] != n {
			t.Fatalf("%s: %+v", step, s)
		}
	}
	advance("apply", "r", "Applied")
	w.settle(ids...)
	observed := "Soaking"
	if strings.Contains(edits, "delete") {
		observed = "Healthy" // gone
	}
	advance("observe", "r", observed)
	steps["begin the undo"] = w.transactionsOf(func() { w.do("r", "undo") })
	advance("undo", "r-undo", "Applied")
	return steps
}

// Rows are planned, applied, observed and undone in as many statements, however many rows there are.
func TestStatementsOfARolloutDoNotGrowWithItsRows(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string]string{
		"upgrade": `{upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"]}}`,
		"merge":   `{merge: [{apiVersion: v1, kind: ConfigMap, name: logging}], select: {templateIdPatterns: ["t:v1"]}}`,
		"delete":  `{delete: {}, select: {templateIdPatterns: ["t:v1"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			few, many := cost(t, 10, edits), cost(t, 60, edits)
			if name == "delete" { // a plan lists the children of each deployment that it deletes
				delete(many, "plan")
			}
			for step, n := range many {
				if n > few[step]+5 {
					t.Errorf("%s: 60 rows take %d transactions and statements, and 10 take %d", step, n, few[step])
				}
			}
			t.Log(strings.ReplaceAll(fmt.Sprint("10 rows: ", few, ", 60 rows: ", many), "map", ""))
		})
	}
}

// Commands and views of a rollout read the rows that they change, and count the others.
func TestCommandsOfARolloutDoNotReadAllRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(40)
	s := w.create("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "waves: [{name: canary, count: 2, approval: Required}, {name: rest}]\n  limits: {concurrent: 30}", 1))
	named := func(c *tko.RolloutCommand) { c.Plan = s.Plan }
	reads := func(what string, most int64, do func()) {
		t.Helper()
		w.counted.rows.Store(0)
		do()
		if n := w.counted.rows.Load(); n > most {
			t.Errorf("%s reads %d rows, want at most %d", what, n, most)
		}
	}
	reads("plan", 0, func() {
		p, err := w.RolloutPlan(w.ctx, "r")
		if err != nil || p.Waves[1].Rows != 38 || p.Kinds["Change"] != 40 {
			t.Errorf("%+v: %v", p, err)
		}
	})
	reads("start", 0, func() { w.do("r", "start", named) })
	reads("approve", 0, func() { w.do("r", "approve") })
	w.advance("r")
	w.settle(ids...)
	w.advance("r")
	w.advance("r")
	reads("pause", 0, func() { w.do("r", "pause") })
	reads("status", 0, func() {
		if s := w.status("r"); s.Waves[0].Progress["Healthy"] != 2 || s.Waves[1].Progress["Applied"] != 30 || s.Waves[1].Progress["Waiting"] != 8 {
			t.Errorf("%+v", s)
		}
	})
	waiting := tko.DeploymentID("")
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "r", Progress: []string{"Waiting"}}) {
		if err != nil {
			t.Fatal(err)
		}
		waiting = row.Deployment
	}
	reads("skip", 1, func() { w.do("r", "skip", func(c *tko.RolloutCommand) { c.Deployment = waiting }) })
	reads("waive", 0, func() { w.do("r", "waive") })
	reads("resume", 0, func() { w.do("r", "resume") })
	reads("cancel", 0, func() { w.do("r", "cancel") })
	if s := w.status("r"); s.Waves[1].Progress["Skipped"] != 8 || s.Waves[1].Progress["Applied"] != 30 || s.State != "Cancelled" {
		t.Errorf("%+v", s)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "plan"}); err == nil || !strings.Contains(err.Error(), "it changed deployments before it was cancelled") {
		t.Error(err)
	}
	w.settle(ids...)
	w.advance("r")
	if err := w.DeleteRollout(w.ctx, "r"); err != nil {
		t.Error(err)
	}
}

// A plan merges equal packages once: another deployment takes less than a merge.
func TestPlanDoesNotMergeEqualPackagesAgain(t *testing.T) { //nolint:paralleltest // counts allocations
	w := newWorld(t)
	w.template("nf:v1", workload("1"))
	w.template("nf:v2", workload("2"))
	w.upgrade("nf:v1", "nf:v2")
	const more = 150
	allocations := func() float64 {
		for range more {
			if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "nf:v1", Prepared: true, Approved: true}); err != nil {
				t.Fatal(err)
			}
		}
		return testing.AllocsPerRun(1, func() { w.plan() })
	}
	few, many := allocations(), allocations()
	if each := (many - few) / more; each > 600 {
		t.Errorf("another deployment takes %.0f allocations, want 600 at most", each)
	}
}
