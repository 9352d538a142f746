package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func decode(t testing.TB, yaml string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// advance lets the executor work until it waits for a change or a time.
func (w *world) advance(id tko.RolloutID) {
	w.t.Helper()
	for range 200 {
		wait, err := w.AdvanceRollout(w.ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if wait != 0 {
			return
		}
	}
	w.t.Fatal("the executor has always something to do")
}

func (w *world) status(id tko.RolloutID) tko.RolloutStatus {
	w.t.Helper()
	s, err := w.RolloutStatus(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) do(id tko.RolloutID, verb string, change ...func(*tko.RolloutCommand)) tko.RolloutStatus {
	w.t.Helper()
	c := tko.RolloutCommand{ID: id, Verb: verb}
	for _, f := range change {
		f(&c)
	}
	s, err := w.RolloutDo(w.ctx, c)
	if err != nil {
		w.t.Fatal(verb, ": ", err)
	}
	return s
}

// fleet makes n prepared deployments of template t:v1, each at a site.
func (w *world) fleet(n int) []tko.DeploymentID {
	w.t.Helper()
	for _, v := range []string{"v1", "v2"} {
		_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: tko.TemplateID("t:" + v), Package: decode(w.t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {version: "+v+", other: x}\n")})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ids := make([]tko.DeploymentID, n)
	w.each(n, func(i int) error {
		_, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(fmt.Sprintf("s%02d", i)), Metadata: map[string]string{"pair": strconv.Itoa(i / 2)}})
		return err
	})
	for i := range min(n, 100) { // in the order of IDs
		ids[i] = w.member(i)
	}
	w.each(n, func(i int) error {
		if i >= 100 {
			ids[i] = w.member(i)
		}
		return w.settleOne(ids[i])
	})
	w.settle()
	return ids
}

// member makes one deployment of a fleet.
func (w *world) member(i int) tko.DeploymentID {
	id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{
		Template: "t:v1", Site: tko.SiteID(fmt.Sprintf("s%02d", i)), Prepared: true, Approved: true, Metadata: map[string]string{"num": strconv.Itoa(i)},
	})
	if err != nil {
		w.t.Error(err)
	}
	return id
}

// each calls a function for the numbers up to n, several at once, as many clients do.
func (w *world) each(n int, do func(i int) error) {
	w.t.Helper()
	var clients sync.WaitGroup
	for first := range 8 {
		clients.Go(func() {
			for i := first; i < n; i += 8 {
				if err := do(i); err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// settle prepares, approves, and schedules a deployment, as controllers would.
func (w *world) settle(ids ...tko.DeploymentID) {
	w.t.Helper()
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 10_000, Lease: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	finished := make([]tko.FinishedWork, len(items))
	for i, item := range items {
		finished[i] = tko.FinishedWork{Item: item, Outcome: tko.WorkDone}
	}
	if err := w.FinishWork(w.ctx, finished); err != nil {
		w.t.Fatal(err)
	}
	if len(ids) == 0 {
		return
	}
	chosen := make(map[tko.DeploymentID]bool, len(ids))
	for _, id := range ids {
		chosen[id] = true
	}
	var unsettled []tko.DeploymentID
	for d, err := range w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if chosen[d.ID] && !(d.Prepared && d.Approved && slices.ContainsFunc(d.Stamp.Conditions, func(c tko.Condition) bool {
			return c.Type == tko.ConditionScheduled && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision
		})) {
			unsettled = append(unsettled, d.ID)
		}
	}
	w.each(len(unsettled), func(i int) error { return w.settleOne(unsettled[i]) })
}

func (w *world) settleOne(id tko.DeploymentID) error {
	d, err := w.Deployment(w.ctx, id, 0)
	if errors.Is(err, tko.ErrNotFound) {
		return nil
	}
	if err == nil && (!d.Prepared || !d.Approved) {
		_, err = w.CommitDeployment(tko.WithAuthor(w.ctx, tko.Author{Who: "preparer"}), tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: d.Package.WithDeployment(string(d.Template), string(d.Site), true, true)})
		if err == nil {
			d, err = w.Deployment(w.ctx, id, 0)
		}
	}
	if err != nil {
		return err
	}
	return w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{
		{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, ObservedRevision: d.Stamp.Revision}, {Type: tko.ConditionHealthy, Status: tko.ConditionTrue, ObservedRevision: d.Stamp.Revision},
	})
}

const upgrade = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"]}}]
  waves: [{name: canary, count: 1}, {name: rest}]
  health: {within: 15m}
`

func (w *world) create(id tko.RolloutID, yaml string) tko.RolloutStatus {
	w.t.Helper()
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: id, Package: decode(w.t, yaml)}); err != nil {
		w.t.Fatal(err)
	}
	w.advance(id)
	return w.status(id)
}

func (w *world) started(id tko.RolloutID, yaml string) {
	w.t.Helper()
	s := w.create(id, yaml)
	if s.State != "Planned" {
		w.t.Fatalf("%s: %s", s.State, s.Reason)
	}
	w.do(id, "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.advance(id)
}

func (w *world) version(id tko.DeploymentID) string {
	w.t.Helper()
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range d.Package {
		if r.GVK().Kind == "ConfigMap" {
			v, _ := r.Get("data", "version")
			return fmt.Sprint(v)
		}
	}
	return ""
}

func (w *world) versions(ids []tko.DeploymentID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = w.version(id)
	}
	return strings.Join(out, " ")
}

func TestRolloutUpgradesInWavesAndIsUndoneByteForByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(4)
	before := w.content(ids)
	s := w.create("r", upgrade)
	if s.State != "Planned" || s.Kinds["Change"] != 4 || len(s.Plan) != 64 {
		t.Fatalf("%+v", s)
	}
	if got := w.versions(ids); got != "v1 v1 v1 v1" {
		t.Fatal("planning changed something: ", got)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "start"}); !errors.Is(err, tko.ErrInvalid) {
		t.Fatal("start without a digest: ", err)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "start", Plan: "ffffffffffff"}); !errors.Is(err, tko.ErrConflict) {
		t.Fatal("start with another digest: ", err)
	}
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan[:12] })
	w.advance("r")
	if got := strings.Count(w.versions(ids), "v2"); got != 1 {
		t.Fatalf("%d deployments are changed in the canary: %+v", got, w.status("r"))
	}
	w.settle(ids...)
	w.advance("r") // healthy: the next wave begins
	if got := strings.Count(w.versions(ids), "v2"); got != 4 {
		t.Fatalf("%d deployments are changed: %+v", got, w.status("r"))
	}
	w.settle(ids...)
	w.advance("r")
	s = w.status("r")
	if s.State != "Done" || s.Waves[1].Progress["Healthy"] != 3 {
		t.Fatalf("%+v", s)
	}
	s = w.do("r", "undo")
	if s.State != "Undoing" || s.UndoneBy != "r-undo" {
		t.Fatalf("%+v", s)
	}
	for range 3 {
		w.advance("r-undo")
		w.settle(ids...)
	}
	w.advance("r-undo")
	w.advance("r")
	if u, s := w.status("r-undo"), w.status("r"); u.State != "Done" || s.State != "Undone" {
		t.Fatalf("%+v\n%+v", u, s)
	}
	if after := w.content(ids); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// Undoing the undo is the rollout again.
	w.do("r-undo", "undo")
	for range 3 {
		w.advance("r-undo-undo")
		w.settle(ids...)
	}
	w.advance("r-undo-undo")
	w.advance("r-undo")
	w.advance("r")
	if got := w.versions(ids); got != "v2 v2 v2 v2" || w.status("r-undo").State != "Undone" {
		t.Fatalf("%s, %+v", got, w.status("r"))
	}
}

// content returns all that is stored of deployments.
func (w *world) content(ids []tko.DeploymentID) string {
	var out strings.Builder
	for _, id := range ids {
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			w.t.Fatal(err)
		}
		fmt.Fprint(&out, d.ID, d.Parent, d.Template, d.TemplateRevision, d.Site, d.Metadata, d.Prepared, d.Approved, d.Origin, d.Replaces, "\n", string(text))
	}
	return out.String()
}

func TestRowIsAppliedOnlyToTheRevisionThatWasPlanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(3)
	s := w.create("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "waves: [{name: all}]", 1))
	d, err := w.Deployment(w.ctx, ids[1], 0)
	if err != nil {
		t.Fatal(err)
	}
	edited := d.Package.WithDeployment("t:v1", string(d.Site), true, true)
	edited = append(edited, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine"}})
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: ids[1], Revision: d.Stamp.Revision, Package: edited}); err != nil {
		t.Fatal(err)
	}
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.advance("r")
	s = w.status("r")
	if s.State != "Paused" || !strings.Contains(s.Reason, string(ids[1])) || w.version(ids[1]) != "v1" {
		t.Fatalf("%+v", s)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "resume"}); !errors.Is(err, tko.ErrConflict) {
		t.Fatal(err)
	}
	// What is left is planned anew, and goes on with the new digest.
	w.do("r", "plan")
	w.advance("r")
	s = w.status("r")
	if s.State != "Paused" || s.Plan == "" {
		t.Fatalf("%+v", s)
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "r", Verb: "resume"}); !errors.Is(err, tko.ErrConflict) {
		t.Fatal("resume without the digest of the new plan: ", err)
	}
	w.do("r", "resume", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.advance("r")
	w.settle(ids...)
	w.advance("r")
	s = w.status("r")
	if s.State != "Done" || w.versions(ids) != "v2 v2 v2" {
		t.Fatalf("%+v %s", s, w.versions(ids))
	}
	if got := w.content(ids[1:2]); !strings.Contains(got, "mine") {
		t.Error("the edit is lost: ", got)
	}
}

func TestDeletionsAreUndoneWithIDsAndMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	children, _, err := w.CreateChildren(w.ctx, tko.NewChildren{Parent: ids[0], Children: []tko.NewChild{{Origin: "a", Template: "t:v1", Site: "s01"}}})
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(ids, children)
	w.settle(all...)
	before := w.content(all)
	w.started("r", "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  edits: [{delete: {}, select: {metadataPatterns: {num: \"*\"}}}]\n")
	for range 3 {
		w.advance("r")
	}
	for _, id := range all {
		if _, err := w.Deployment(w.ctx, id, 0); !errors.Is(err, tko.ErrNotFound) {
			t.Fatalf("%s: %v: %+v", id, err, w.status("r"))
		}
	}
	if _, err := w.DeleteTemplate(w.ctx, "t:v1"); err != nil {
		t.Fatal(err)
	}
	w.do("r", "undo")
	for range 3 {
		w.advance("r-undo")
		w.settle(all...)
	}
	w.advance("r-undo")
	w.advance("r")
	if s := w.status("r"); s.State != "Undone" {
		t.Fatalf("%+v\n%+v", s, w.status("r-undo"))
	}
	if after := w.content(all); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestUndoLeavesWhatOthersChangedUnlessForced(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{false, true} {
		w := newWorld(t)
		ids := w.fleet(2)
		w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "waves: [{name: all}]", 1))
		w.settle(ids...)
		w.advance("r")
		d, err := w.Deployment(w.ctx, ids[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		edited := append(slices.Clone(d.Package), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine"}})
		if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: ids[0], Revision: d.Stamp.Revision, Package: edited}); err != nil {
			t.Fatal(err)
		}
		w.do("r", "undo", func(c *tko.RolloutCommand) { c.Force = force })
		w.advance("r-undo")
		want := "v2 v1"
		if force {
			want = "v1 v1"
		}
		if got := w.versions(ids); got != want {
			t.Errorf("force %t: %s, %+v", force, got, w.status("r-undo"))
		}
		if s := w.status("r-undo"); !force && (s.Kinds["Conflict"] != 1 || len(s.Examples) != 1) {
			t.Errorf("what is left isn't listed: %+v", s)
		}
	}
}

func TestLimitsHoldForTwoRollouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(4)
	limited := strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 3, apart: [pair]}", 1)
	w.started("r", limited)
	if got := strings.Count(w.versions(ids), "v2"); got != 2 {
		t.Errorf("%d are changed, two pairs have two sites each: %+v", got, w.status("r"))
	}
	s := w.create("other", strings.Replace(limited, "templateIdPatterns: [\"t:v1\"]", "metadataPatterns: {num: \"*\"}", 1))
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: "other", Verb: "start", Plan: s.Plan, SkipBlocked: true}); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), `"r"`) {
		t.Errorf("a second rollout starts on the same deployments: %v, %+v", err, s)
	}
	w.settle(ids...)
	w.advance("r")
	w.settle(ids...)
	w.advance("r")
	if s := w.status("r"); s.State != "Done" {
		t.Errorf("%+v", s)
	}
}

func TestOnlyWavesWithDeploymentsWaitForAnApproval(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]struct{ canary, rest, next string }{
		1: {canary: "Required", rest: "Required", next: "canary"},
		2: {canary: "Required", next: "canary"},
	} {
		w := newWorld(t)
		w.fleet(2)
		waves := fmt.Sprintf("waves: [{name: canary, count: %d, approval: Required}, {name: rest, approval: Required}]", count)
		s := w.create("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", waves, 1))
		if s.Waves[0].Approval != want.canary || s.Waves[1].Approval != want.rest || !slices.Contains(s.Commands, "approve") {
			t.Errorf("%d in the first wave: %+v, commands %q", count, s.Waves, s.Commands)
		}
		s = w.do("r", "approve", func(c *tko.RolloutCommand) { c.Wave = want.next })
		if s.Waves[0].Approval == "Required" || s.Waves[1].Approval != want.rest || slices.Contains(s.Commands, "approve") != (want.rest != "") {
			t.Errorf("%d in the first wave, which is approved: %+v, commands %q", count, s.Waves, s.Commands)
		}
	}
}

// Each command is valid, without effect, or refused with a remedy, in each state that a
// rollout of the catalog can be in; and a second run changes nothing.
func TestCommandsInEachStateOfTheCatalog(t *testing.T) {
	t.Parallel()
	one := strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "waves: [{name: canary, count: 1}, {name: rest, approval: Required}]", 1)
	reach := map[string]func(w *world, ids []tko.DeploymentID){
		"Draft": func(w *world, _ []tko.DeploymentID) {
			if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "r", Package: decode(t, one)}); err != nil {
				t.Fatal(err)
			}
		},
		"Planned": func(w *world, _ []tko.DeploymentID) { w.create("r", one) },
		"Running": func(w *world, _ []tko.DeploymentID) { w.started("r", one) },
		"Paused":  func(w *world, _ []tko.DeploymentID) { w.started("r", one); w.do("r", "pause") },
		"Done": func(w *world, ids []tko.DeploymentID) {
			w.started("r", one)
			w.settle(ids...)
			w.do("r", "approve")
			w.advance("r")
			w.settle(ids...)
			w.advance("r")
		},
		"Undoing":   func(w *world, _ []tko.DeploymentID) { w.started("r", one); w.do("r", "undo") },
		"Cancelled": func(w *world, _ []tko.DeploymentID) { w.started("r", one); w.do("r", "cancel") },
	}
	valid := map[string]string{
		"Draft": "plan cancel", "Planned": "plan start approve cancel", "Running": "start approve pause resume cancel undo skip waive", "Paused": "plan approve pause resume cancel undo skip waive",
		"Done": "undo", "Undoing": "undo", "Cancelled": "cancel undo",
	}
	offered := map[string]string{
		"Draft": "plan cancel delete", "Planned": "plan start approve cancel delete", "Running": "approve pause cancel undo", "Paused": "plan approve resume cancel undo",
		"Done": "undo delete", "Undoing": "", "Cancelled": "undo delete",
	}
	for state, to := range reach {
		t.Run("commands that are offered while "+state, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			to(w, w.fleet(2))
			if got := strings.Join(w.status("r").Commands, " "); got != offered[state] {
				t.Errorf("offered are %q, want %q", got, offered[state])
			}
		})
		for _, verb := range []string{"plan", "start", "approve", "pause", "resume", "cancel", "undo", "nonsense"} {
			t.Run(verb+" while "+state, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				ids := w.fleet(2)
				to(w, ids)
				before := w.status("r")
				if before.State != state {
					t.Fatalf("it is %s (%s)", before.State, before.Reason)
				}
				c := tko.RolloutCommand{ID: "r", Verb: verb}
				if verb == "start" {
					c.Plan = before.Plan
				}
				content := w.content(ids)
				_, err := w.RolloutDo(w.ctx, c)
				want := slices.Contains(strings.Fields(valid[state]), verb)
				if (err == nil) != want {
					t.Fatalf("%v", err)
				}
				if err != nil {
					if after := w.status("r"); after.State != state || w.content(ids) != content {
						t.Errorf("a refused command changed something: %+v", after)
					}
					if verb != "nonsense" && !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), ": ") {
						t.Errorf("%v", err)
					}
					return
				}
				first := w.status("r")
				if _, err := w.RolloutDo(w.ctx, c); err == nil && w.status("r").State != first.State {
					t.Errorf("a second run goes on from %s to %s", first.State, w.status("r").State)
				}
			})
		}
	}
}

func TestRolloutInProgressIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(1)
	w.started("r", upgrade)
	if err := w.DeleteRollout(w.ctx, "r"); !errors.Is(err, tko.ErrConflict) {
		t.Fatal(err)
	}
	w.settle(ids...)
	w.advance("r")
	if err := w.DeleteRollout(w.ctx, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Rollout(w.ctx, "r", 0); !errors.Is(err, tko.ErrNotFound) {
		t.Fatal(err)
	}
}

// Too many failures pause the rollout, or undo it; health counts at the revision that was
// rolled out only.
func TestFailuresBeyondTheBudgetUndoTheCanary(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"Pause": "Paused", "Undo": "Undone"} {
		w := newWorld(t)
		ids := w.fleet(3)
		before := w.content(ids)
		w.started("r", strings.Replace(upgrade, "health: {within: 15m}", "health: {within: 1s}\n  onFailure: "+policy, 1))
		eventually.True(t, "the expected state is reached", func() bool {
			w.advance("r")
			if s := w.status("r"); s.UndoneBy != "" {
				w.advance(s.UndoneBy)
				w.settle(ids...)
			}
			return w.status("r").State == want
		})
		if s := w.status("r"); s.Failures != 1 || policy == "Undo" && w.content(ids) != before || strings.Count(w.versions(ids), "v2") > 1 {
			t.Errorf("%s: %+v, %s", policy, s, w.versions(ids))
		}
	}
}

// Each call commits at most once: an executor that is killed between two of them leaves no
// rollout that is to be undone without the one that undoes it.
func TestDecisionToUndoAndItsRolloutAreOneCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(3)
	w.started("r", strings.Replace(upgrade, "health: {within: 15m}", "health: {within: 1s}\n  onFailure: Undo", 1))
	eventually.True(t, "the expected state is reached", func() bool {
		if _, err := w.AdvanceRollout(w.ctx, "r"); err != nil {
			t.Fatal(err)
		}
		return w.status("r").State != "Running"
	})
	s := w.status("r")
	if s.State != "Undoing" || s.UndoneBy == "" || s.Failures != 1 {
		t.Fatalf("after the commit of the decision: %+v", s)
	}
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueRollout, Max: 10, Lease: time.Minute})
	if err != nil || !slices.ContainsFunc(items, func(i tko.WorkItem) bool { return i.Key == string(s.UndoneBy) }) {
		t.Errorf("no executor will advance %s: %v, %v", s.UndoneBy, items, err)
	}
	eventually.True(t, "others go on", func() bool {
		w.advance(s.UndoneBy)
		w.advance("r")
		w.settle(ids...)
		return w.status("r").State == "Undone"
	})
}

// The executor reads rows that have changed, and sites of rows that may be admitted.
func TestEvaluationCostsWhatChangedAndNotAllRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(150)
	w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 3, per: [{key: pair, max: 2}]}", 1))
	w.advance("r")
	w.advance("r") // reads its own writes
	cost := func(what string, rows, sites int64) {
		t.Helper()
		w.counted.rows.Store(0)
		w.counted.sites.Store(0)
		w.advance("r")
		if r, s := w.counted.rows.Load(), w.counted.sites.Load(); r > rows || s > sites {
			t.Errorf("%s: %d rows and %d sites are read, want at most %d and %d", what, r, s, rows, sites)
		}
	}
	cost("nothing has changed", 0, 3)
	for _, id := range ids {
		if w.version(id) == "v2" {
			w.settle(id)
			break
		}
	}
	cost("one is healthy", 10, 40)
	w.do("r", "pause")
	cost("it is paused", 10, 10)
}

// A service that knows the rows of a rollout decides by what others wrote since.
func TestEvaluationSeesWhatOtherProcessesWrote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(4)
	w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 1}\n  ", 1))
	other := catalog.New(w.counted.Store, nil, catalog.Options{})
	other.PlanWith(w.planner)
	for n := range 200 {
		s := w.status("r")
		if s.State == "Done" {
			break
		}
		for _, service := range []*catalog.Service{w.Service, other} {
			if _, err := service.AdvanceRollout(w.ctx, "r"); err != nil {
				t.Fatal(err)
			}
		}
		if n == 3 { // what is left is replaced
			w.do("r", "pause")
			w.do("r", "plan")
			w.advance("r")
			w.do("r", "resume", func(c *tko.RolloutCommand) { c.Plan = w.status("r").Plan })
		}
		w.settle(ids...)
	}
	if s := w.status("r"); s.State != "Done" || strings.Count(w.versions(ids), "v2") != 4 {
		t.Errorf("%+v, %s", s, w.versions(ids))
	}
}

func TestRolloutsFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	w.edit(ids[0], set(t, `v1 ConfigMap "c"`, "mine", "data", "other"))
	w.settle(ids...)
	w.template("t:v3", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {version: v3, other: x}}")
	for n, yaml := range []string{upgrade, strings.NewReplacer("t:v2", "t:v3", "t:v1", "t:v2").Replace(upgrade)} {
		id := tko.RolloutID(fmt.Sprintf("r%d", n))
		w.started(id, strings.Replace(yaml, "  waves: [{name: canary, count: 1}, {name: rest}]\n", "", 1))
		for range 2 {
			w.settle(ids...)
			w.advance(id)
		}
	}
	if got := w.versions(ids); got != "v3 v3" {
		t.Errorf("versions %s: %+v", got, w.status("r1"))
	}
	if other, _ := w.deployment(ids[0]).Package.Find(krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: "c"}).Get("data", "other"); other != "mine" {
		t.Errorf("the user's edit became %v", other)
	}
}

// A template that was deleted after the plan pauses the rollout, with the reason, in place
// of failing in every step.
func TestDeletedTemplatePausesTheRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(2)
	s := w.create("r", upgrade)
	if _, err := w.DeleteTemplate(w.ctx, "t:v2"); err != nil {
		t.Fatal(err)
	}
	w.do("r", "start", func(c *tko.RolloutCommand) { c.Plan = s.Plan })
	w.advance("r")
	s = w.status("r")
	if s.State != "Paused" || !strings.Contains(s.Reason, "t:v2") || w.versions(ids) != "v1 v1" {
		t.Errorf("%+v", s)
	}
	s = w.do("r", "cancel")
	if s.State != "Cancelled" {
		t.Errorf("%+v", s)
	}
}
