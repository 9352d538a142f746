package planner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
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

// Random edits between plan and start: a row is applied if and only if its deployment is
// as planned, and undoing returns all packages, IDs and metadata.
func TestUndoOfManyMixedChangesIsByteForByte(t *testing.T) {
	t.Parallel()
	n := 300
	if text := os.Getenv("TKO_ROLLOUT_FLEET"); text != "" { // a multiple of 10
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	ids := w.fleet(n)
	r := rand.New(rand.NewPCG(1, 2))
	for _, id := range ids { // users' own changes
		if r.IntN(3) > 0 {
			continue
		}
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		own := append(slices.Clone(d.Package), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "own"}, "data": map[string]any{"n": strconv.Itoa(r.IntN(9))}})
		if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: own}); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(ids...)
	before := w.content(ids)
	w.started("r", `apiVersion: tko.nephio.org/v1alpha1
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
	for range 6 {
		w.settle(ids...)
		w.advance("r")
	}
	s := w.status("r")
	if s.State != "Done" || s.Kinds["Delete"] != n/10 || s.Kinds["Change"] != n-n/10 {
		t.Fatalf("%+v", s)
	}
	if during := w.contentOf(ids); during == before || !strings.Contains(during, "debug") {
		t.Fatal("nothing was changed")
	}
	w.do("r", "undo")
	for range 6 {
		w.advance("r-undo")
		w.settle(ids...)
	}
	w.advance("r-undo")
	w.advance("r")
	if s = w.status("r"); s.State != "Undone" {
		t.Fatalf("%+v\n%+v", s, w.status("r-undo"))
	}
	if after := w.content(ids); after != before {
		a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d:\n%s\n%s", i, a[i], b[i])
			}
		}
		t.Fatal("the contents have different lengths")
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
