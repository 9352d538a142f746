package planner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/soak"
)

// Executors compete for two rollouts while users edit deployments. Whatever the order is,
// no limit is exceeded, no row is applied twice, and each result is as planned.
func TestCompetingExecutorsKeepLimitsAndApplyEachRowOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(12)
	const limited = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "t:v2"}, select: {metadataPatterns: {num: "%s"}, templateIdPatterns: ["t:v1"]}}]
  limits: {concurrent: 2, apart: [pair]}
`
	for _, r := range []struct{ id, pattern string }{{"low", "*"}} {
		s := w.create(tko.RolloutID(r.id), fmt.Sprintf(limited, r.pattern))
		if s.State != "Planned" {
			t.Fatalf("%+v", s)
		}
	}
	starts := map[tko.RolloutID]tko.RolloutStatus{"low": w.status("low")}
	for id, s := range starts {
		w.do(id, "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	}
	revisions := map[tko.DeploymentID]int64{}
	for _, id := range ids {
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		revisions[id] = d.Stamp.Revision
	}
	stop := make(chan struct{})
	var executors sync.WaitGroup
	for range 4 {
		executors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := w.AdvanceRollout(w.ctx, "low"); err != nil && w.ctx.Err() == nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Millisecond) // others have to run, too
			}
		})
	}
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		changing, pairs := 0, map[string]tko.SiteID{}
		var unsettled []tko.DeploymentID
		for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "low"}) {
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains([]string{"Applied", "Soaking", "Failed"}, row.Progress) {
				continue
			}
			changing++
			unsettled = append(unsettled, row.Deployment)
			site, err := w.Site(w.ctx, row.Site, 0)
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := pairs[site.Metadata["pair"]]; ok && other != row.Site {
				t.Fatalf("%s and %s are changed at once", other, row.Site)
			}
			pairs[site.Metadata["pair"]] = row.Site
		}
		if changing > 2 {
			t.Fatalf("%d deployments are changed and not healthy", changing)
		}
		if s := w.status("low"); s.State == "Done" || s.State == "Paused" {
			break
		}
		w.settle(unsettled...)
	}
	close(stop)
	executors.Wait()
	s := w.status("low")
	if s.State != "Done" || s.Waves[0].Progress["Healthy"] != s.Waves[0].Rows || s.Waves[0].Rows == 0 {
		t.Fatalf("%+v", s)
	}
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "low"}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Applied != revisions[row.Deployment]+1 || w.version(row.Deployment) != "v2" {
			t.Errorf("%s was applied as revision %d, want %d", row.Deployment, row.Applied, revisions[row.Deployment]+1)
		}
	}
}

// Users edit some deployments before the plan, and some between plan and start: a row is
// applied if and only if its deployment is as planned. Undoing returns all packages, IDs,
// origins, children and metadata of the others, and the history shows both.
func TestUndoOfManyMixedChangesIsByteForByte(t *testing.T) {
	t.Parallel()
	n := soak.Rounds(t, 1000, 5000)
	if testing.Short() {
		n = 500
	}
	w := newWorld(t)
	ids := w.fleet(n)
	r := rand.New(rand.NewPCG(1, 2))
	edit := func(ids []tko.DeploymentID) { // users' own changes
		values := make([]string, len(ids))
		for i := range values {
			values[i] = strconv.Itoa(r.IntN(9))
		}
		w.each(len(ids), func(i int) error {
			d, err := w.Deployment(w.ctx, ids[i], 0)
			if err != nil {
				return err
			}
			own := append(slices.Clone(d.Package), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "own" + strconv.FormatInt(d.Stamp.Revision, 10)}, "data": map[string]any{"n": values[i]}})
			_, err = w.CommitDeployment(tko.WithConfirmation(w.ctx, 1), tko.DeploymentCommit{ID: ids[i], Revision: d.Stamp.Revision, Package: own})
			return err
		})
	}
	some := func(percent int) (chosen []tko.DeploymentID) {
		for _, id := range ids {
			if r.IntN(100) < percent {
				chosen = append(chosen, id)
			}
		}
		return chosen
	}
	edit(some(33))
	w.template("t:v3", config("c", "version: v3"))
	children := make([][]tko.DeploymentID, n/20)
	w.each(len(children), func(i int) (err error) { // of some that are deleted, and of others
		children[i], _, err = w.CreateChildren(w.ctx, tko.NewChildren{Parent: ids[20*i+7*(i%2)], Children: []tko.NewChild{{Origin: "a", Template: "t:v3", Site: "s00"}, {Origin: "b", Template: "t:v3", Site: "s01"}}})
		return err
	})
	all := append(slices.Concat(children...), ids...)
	w.settle(all...)
	s := w.create("r", `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits:
  - {upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"]}}
  - {merge: [{apiVersion: v1, kind: ConfigMap, name: logging}], select: {metadataPatterns: {num: "*1"}}}
  - {delete: {}, select: {metadataPatterns: {num: "*7"}}}
  waves: [{name: canary, percent: 10, spread: pair}, {name: rest}]
  limits: {concurrent: 10000}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: logging}
data: {level: debug}
`)
	moved := map[tko.DeploymentID]bool{}
	for _, id := range some(1) {
		moved[id] = true
	}
	edit(slices.Collect(maps.Keys(moved)))
	w.settle(all...)
	before := w.content(all)
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	for w.status("r").State != "Done" {
		w.advance("r")
		if st := w.status("r"); st.State == "Paused" { // at a row that isn't as planned
			w.do("r", "skip")
			w.do("r", "resume")
		}
		w.settle(all...)
	}
	applied := 0
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: "r"}) {
		if err != nil {
			t.Fatal(err)
		}
		if is := row.Progress == "Healthy"; is == moved[row.Deployment] || row.Progress != "Healthy" && row.Applied != 0 {
			t.Fatalf("edited after the plan: %t, and its row is %+v", moved[row.Deployment], row)
		}
		if row.Progress == "Healthy" {
			applied++
		}
	}
	if applied < n-n/20 {
		t.Fatalf("only %d rows are applied: %+v", applied, w.status("r"))
	}
	if during := w.contentOf(all); during == before || !strings.Contains(during, "debug") {
		t.Fatal("nothing was changed")
	}
	w.do("r", "undo")
	for w.status("r").State != "Undone" {
		w.advance("r-undo")
		w.advance("r")
		if st := w.status("r-undo"); st.State == "Paused" {
			t.Fatalf("%+v", st)
		}
		w.settle(all...)
	}
	if after := w.content(all); after != before {
		a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d:\n%s\n%s", i, a[i], b[i])
			}
		}
		t.Fatal("the contents have different lengths")
	}
	for i, parent := range children {
		for _, id := range parent {
			if d := w.deployment(id); d.Parent != ids[20*i+7*(i%2)] {
				t.Errorf("the parent of %s is %q", id, d.Parent)
			}
		}
	}
	times := map[string]int{} // in the history
	for e, err := range w.HistoryOf(w.ctx, tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}}) {
		if err != nil {
			t.Fatal(err)
		}
		times[e.Author.Why]++
	}
	if times[`rollout "r"`] != applied || times[`rollout "r-undo"`] != applied {
		t.Errorf("the history has %d changes of the rollout and %d of the undo, want %d", times[`rollout "r"`], times[`rollout "r-undo"`], applied)
	}
}

// contentOf is content of those that exist.
func (w *world) contentOf(ids []tko.DeploymentID) string {
	var there []tko.DeploymentID
	for _, id := range ids {
		if _, err := w.Deployment(w.ctx, id, 0); err == nil {
			there = append(there, id)
		}
	}
	return w.content(there)
}
