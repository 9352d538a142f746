package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

const stagedUpgrade = `apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [{upgrade: {to: "p:v2"}, select: {templateIdPatterns: ["p:v1"]}}]
  stage: {images: true, concurrent: 2, namespace: tko-stage, pullSecrets: [registry]}
`

const (
	atCluster = "{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {kubeconfig: {file: edge.yaml}}}"
	atGit     = "{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: c}, spec: {url: /x.git}}"
	byAgent   = "{apiVersion: kubernetes.plugin.nephio.org/v1alpha1, kind: Cluster, metadata: {name: c}, spec: {agent: {}}}"
)

// pods makes a deployment with a pod at each of some sites.
func (w *world) pods(sites map[string]string) (ids map[string]tko.DeploymentID) {
	w.t.Helper()
	for _, v := range []string{"v1", "v2"} {
		w.template("p:"+v, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: \"smf:"+v+"\"}, {name: b, image: \"same:1\"}]}}")
	}
	ids = map[string]tko.DeploymentID{}
	for site, pkg := range sites {
		if _, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(site), Package: read(w.t, pkg)}); err != nil {
			w.t.Fatal(err)
		}
		id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "p:v1", Site: tko.SiteID(site), Prepared: true, Approved: true})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.settleOne(id); err != nil {
			w.t.Fatal(err)
		}
		ids[site] = id
	}
	w.settle()
	return ids
}

func (w *world) image(id tko.DeploymentID) string {
	w.t.Helper()
	_, version, _ := strings.Cut(write(w.t, w.deployment(id).Package), "image: smf")
	version, _, _ = strings.Cut(version, "\n")
	return "smf" + version
}

// wanted returns the pulls that the rollout wants at a site.
func (w *world) wanted(site tko.SiteID) []tko.SiteStaging {
	w.t.Helper()
	all, err := w.SiteStagings(w.ctx, site)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) reportPull(p tko.SiteStaging, state, text string) {
	w.t.Helper()
	p.State, p.Text = state, text
	if err := w.ReportSiteStaging(w.ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

// The plan lists the images that deployments get and didn't have, and names the sites at which
// nothing can be pulled.
func TestPlansListImagesAndWhatIsNotStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pods(map[string]string{"a": atCluster, "b": atCluster, "git": atGit, "agent": byAgent})
	if s := w.create("r", stagedUpgrade); s.State != "Planned" {
		t.Fatalf("%s: %s", s.State, s.Reason)
	}
	p, err := w.RolloutPlan(w.ctx, "r")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]tko.RolloutImage{{Reference: "smf:v2", Kind: "image", Sites: 4}}, p.Images); diff != "" {
		t.Error(diff)
	}
	text := strings.Join(p.Warnings, "\n")
	for _, want := range []string{`not staged: images are not pulled before the change at 1 site, such as "git", because TKO doesn't reach clusters behind the target git`, `1 site, such as "agent", because only the agents of the sites reach their clusters`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Nothing is changed at a site before it reports that it has the images; what can't be staged
// isn't delayed.
func TestSitesPullBeforeTheyAreChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.pods(map[string]string{"a": atCluster, "b": atCluster, "c": atCluster, "git": atGit})
	w.started("r", strings.Replace(stagedUpgrade, "spec:", "spec:\n  health: {none: Accept}", 1))
	w.advance("r")
	changed := func() (sites []string) {
		for site, id := range ids {
			if w.image(id) == "smf:v2" {
				sites = append(sites, site)
			}
		}
		slices.Sort(sites)
		return sites
	}
	if got := fmt.Sprint(changed()); got != "[git]" {
		t.Fatalf("%s are changed\n%v", got, w.status("r").Blocks)
	}
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 100, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var pulling []tko.SiteID
	for _, site := range []tko.SiteID{"a", "b", "c", "git"} {
		all := w.wanted(site)
		if len(all) == 0 {
			continue
		}
		pulling = append(pulling, site)
		one := all[0]
		if len(all) != 1 || one.Key == "" || fmt.Sprint(one.Images) != "[smf:v2]" || one.Namespace != "tko-stage" || fmt.Sprint(one.PullSecrets) != "[registry]" || !one.EveryNode || !one.Until.After(w.status("r").Now) {
			t.Errorf("%s: %+v", site, all)
		}
		if !slices.ContainsFunc(items, func(i tko.WorkItem) bool { return i.Key == string(site) }) {
			t.Errorf("the work of %s isn't due", site)
		}
	}
	if len(pulling) != 2 {
		t.Fatalf("%v pull, want 2 at once", pulling)
	}
	first := w.wanted(pulling[0])[0]
	w.reportPull(first, tko.StagingPulled, "1 of 1 nodes have the 1 images")
	w.reportPull(first, tko.StagingFailed, "twice") // too late: it changes nothing
	w.advance("r")
	if got := fmt.Sprint(changed()); got != fmt.Sprintf("[%s git]", pulling[0]) {
		t.Errorf("%s are changed", got)
	}
	if all := w.wanted(pulling[0]); len(all) != 0 {
		t.Errorf("it still wants %+v", all)
	}

	// A pull that failed is a reason that users see.
	second := w.wanted(pulling[1])[0]
	w.reportPull(second, tko.StagingPulling, "image smf:v2: ImagePullBackOff")
	if row := w.row("r", ids[string(pulling[1])]); !strings.Contains(row.Staging, "1 image being pulled") || !strings.Contains(row.Staging, "ImagePullBackOff") {
		t.Errorf("the row says %q", row.Staging)
	}
	w.reportPull(second, tko.StagingFailed, "image smf:v2: not found")
	w.advance("r")
	if text := fmt.Sprint(w.status("r").Blocks); !strings.Contains(text, "1 deployment waits: staging: image smf:v2: not found; it is tried again") {
		t.Errorf("%s", text)
	}
	if row := w.row("r", ids[string(pulling[1])]); !strings.Contains(row.Staging, "1 image not pulled") {
		t.Errorf("the row says %q", row.Staging)
	}

	// Nothing is pulled for a rollout that was cancelled, and what is being pulled is removed: the
	// site is woken for that, and its report ends the rollout's work.
	third := tko.SiteID("c")
	for _, site := range []tko.SiteID{"a", "b", "c"} {
		if !slices.Contains(pulling, site) {
			third = site
		}
	}
	before := w.wanted(third)
	if len(before) != 1 || before[0].Over {
		t.Fatalf("the next site pulls %+v", before)
	}
	for _, i := range items {
		if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: i, Outcome: tko.WorkDone}}); err != nil {
			t.Fatal(err)
		}
	}
	w.do("r", "cancel")
	w.advance("r")
	all := w.wanted(third)
	if len(all) != 1 || !all[0].Over || all[0].Key != before[0].Key || all[0].Namespace != "tko-stage" {
		t.Fatalf("after the cancellation it wants %+v", all)
	}
	if items, err = w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 100, Lease: time.Minute}); err != nil || !slices.ContainsFunc(items, func(i tko.WorkItem) bool { return i.Key == string(third) }) {
		t.Errorf("%v: the work of %s isn't due: %+v", err, third, items)
	}
	if err := w.DeleteRollout(w.ctx, "r"); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "sites still end its pulls") {
		t.Errorf("it is deleted while a site pulls: %v", err)
	}
	w.reportPull(all[0], tko.StagingEnded, "")
	w.advance("r")
	if all := w.wanted(third); len(all) != 0 {
		t.Errorf("after its report the site wants %+v", all)
	}
	if row := w.row("r", ids[string(third)]); row.Progress != "Skipped" {
		t.Errorf("the row is %s", row.Progress)
	}
}

// A rollout that is cancelled while nothing but a pull goes on has the site remove it.
func TestCancelledRolloutsHaveSitesEndTheirPulls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pods(map[string]string{"a": atCluster})
	w.started("r", stagedUpgrade)
	w.advance("r")
	before := w.wanted("a")
	w.do("r", "cancel")
	for range 3 {
		w.advance("r")
		if all := w.wanted("a"); len(before) != 1 || len(all) != 1 || !all[0].Over || all[0].Key != before[0].Key {
			t.Fatalf("the site had %+v, and then has %+v; want that it is over", before, all)
		}
	}
	w.reportPull(before[0], tko.StagingEnded, "")
	w.advance("r")
	if all := w.wanted("a"); len(all) != 0 {
		t.Errorf("after its report the site wants %+v", all)
	}
	if err := w.DeleteRollout(w.ctx, "r"); err != nil {
		t.Error(err)
	}
}

func (w *world) row(id tko.RolloutID, of tko.DeploymentID) tko.RolloutRow {
	w.t.Helper()
	for row, err := range w.RolloutRows(w.ctx, tko.RolloutRows{ID: id, Deployment: of}) {
		if err != nil {
			w.t.Fatal(err)
		}
		return row
	}
	w.t.Fatalf("there is no row of %s", of)
	return tko.RolloutRow{}
}

// An undo of a rollout that stages pulls nothing: the sites had what it returns to.
func TestUndosPullNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.pods(map[string]string{"a": atCluster})
	w.started("r", stagedUpgrade)
	w.advance("r")
	w.reportPull(w.wanted("a")[0], tko.StagingPulled, "")
	w.advance("r")
	w.settle(ids["a"])
	w.advance("r")
	w.do("r", "undo")
	w.advance("r")
	w.advance("r-undo")
	if got := w.image(ids["a"]); got != "smf:v1" {
		t.Errorf("it has %s, %v", got, w.status("r-undo").Blocks)
	}
}
