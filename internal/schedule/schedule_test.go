package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// records are a data controller with the methods that the meta-scheduler calls.
type records struct {
	mu          sync.Mutex
	sites       map[tko.SiteID]tko.Site
	deployments map[tko.DeploymentID]tko.Deployment
	plugins     []tko.Plugin
	writes      int
	queue       []tko.WorkItem
	called      atomic.Int64 // how often sites were enqueued
	finished    map[string]tko.FinishedWork
	claimed     map[string]bool
	retry       bool               // whether work that failed comes back
	fail        error              // of reading deployments
	past        map[int64]tko.Site // of a site, by revision
	freezes     []tko.Freeze
	apart       map[tko.SiteID]string // why sites are held
	saved       []savedState
	former      map[int64]tko.Deployment // revisions of deployments
	stop        tko.SiteStop
	wanted      []tko.SiteStaging // pulls
	staged      []tko.SiteStaging // what was reported of them
}

func (r *records) SiteStagings(context.Context, tko.SiteID) ([]tko.SiteStaging, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted, nil
}

func (r *records) ReportSiteStaging(_ context.Context, p tko.SiteStaging) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.staged = append(r.staged, p)
	return nil
}

// A savedState is the state of a target, with the claim that it was saved with.
type savedState struct {
	state tko.TargetState
	claim tko.WorkItem
}

func (r *records) Freezes(context.Context) ([]tko.Freeze, error) { return r.freezes, nil }

func (r *records) SiteStop(context.Context, tko.SiteID) (tko.SiteStop, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop, nil
}

func (r *records) SiteHold(_ context.Context, id tko.SiteID) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.apart[id], nil
}

func (r *records) Site(_ context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sites[id]
	if revision > 0 {
		s, ok = r.past[revision]
	}
	if !ok {
		return tko.Site{}, tko.NotFound(tko.KindSite, id)
	}
	return s, nil
}

func (r *records) Deployment(_ context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.deployments[id]
	if revision > 0 && revision != d.Stamp.Revision {
		d, ok = r.former[revision]
	}
	if !ok {
		return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
	}
	return d, nil
}

func (r *records) Deployments(_ context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail != nil {
			yield(tko.Deployment{}, r.fail)
			return
		}
		var ids []tko.DeploymentID
		for id := range r.deployments {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			d := r.deployments[id]
			if !slices.Contains(s.Sites, string(d.Site)) {
				continue
			}
			if !o.Packages {
				d.Package = nil
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (r *records) Plugins(_ context.Context, s tko.PluginSelect, _ tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(yield func(tko.Plugin, error) bool) {
		for _, p := range r.plugins {
			if p.Type == *s.Type && !yield(p, nil) {
				return
			}
		}
	}
}

func (r *records) SetConditions(_ context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	merge := func(old []tko.Condition) []tko.Condition {
		kept := slices.DeleteFunc(slices.Clone(old), func(c tko.Condition) bool {
			return slices.ContainsFunc(conditions, func(n tko.Condition) bool { return n.Type == c.Type })
		})
		return append(kept, conditions...)
	}
	if kind == tko.KindSite {
		s, ok := r.sites[tko.SiteID(id)]
		if !ok {
			return tko.NotFound(kind, id)
		}
		s.Stamp.Conditions = merge(s.Stamp.Conditions)
		r.sites[s.ID] = s
		return nil
	}
	d, ok := r.deployments[tko.DeploymentID(id)]
	if !ok {
		return tko.NotFound(kind, id)
	}
	d.Stamp.Conditions = merge(d.Stamp.Conditions)
	r.deployments[d.ID] = d
	return nil
}

func (r *records) TargetState(_ context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range slices.Backward(r.saved) {
		if one.state.Site == site && one.state.Name == name {
			return one.state, nil
		}
	}
	return tko.TargetState{}, tko.ErrNotFound
}

func (r *records) SaveTargetState(_ context.Context, state tko.TargetState, claim tko.WorkItem) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved = append(r.saved, savedState{state, claim})
	return 1, nil
}

func (r *records) ClaimWork(ctx context.Context, c tko.ClaimWork) ([]tko.WorkItem, error) {
	r.mu.Lock()
	var items, rest []tko.WorkItem
	for _, item := range r.queue {
		if item.Queue == c.Queue && len(items) < c.Max && !r.claimed[item.Key] { // no item is looked at twice at the same time
			items = append(items, item)
		} else {
			rest = append(rest, item)
		}
	}
	r.queue = rest
	for _, item := range items {
		r.claimed[item.Key] = true
	}
	r.mu.Unlock()
	if len(items) > 0 {
		return items, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(min(c.Wait, 10*time.Millisecond)):
		return nil, nil
	}
}

// due queues an item, unless it is queued already.
func (r *records) due(item tko.WorkItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.queue, func(other tko.WorkItem) bool { return other.Key == item.Key }) {
		r.queue = append(r.queue, item)
	}
}

// EnqueueSites fails the first time.
func (r *records) EnqueueSites(_ context.Context, ids []tko.SiteID) error {
	if r.called.Add(1) == 1 {
		return tko.Errorf(tko.ErrUnavailable, "not yet")
	}
	for _, id := range ids {
		r.due(tko.WorkItem{Queue: tko.QueueSchedule, Key: string(id), Claim: "c"})
	}
	return nil
}

func (r *records) RenewWork(_ context.Context, items []tko.WorkItem, _ time.Duration) ([]tko.WorkItem, error) {
	return items, nil
}

func (r *records) FinishWork(_ context.Context, work []tko.FinishedWork) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range work {
		r.finished[w.Item.Key] = w
		r.claimed[w.Item.Key] = false
		again := w.Outcome == tko.WorkLater || w.Outcome == tko.WorkFailed && r.retry
		if again && w.Retry < time.Minute {
			time.AfterFunc(max(w.Retry, 50*time.Millisecond), func() { r.due(w.Item) })
		}
	}
	return nil
}

// said returns the Scheduled conditions of the records: "True Scheduled @1".
func (r *records) said() map[string]string { return r.saidOf(tko.ConditionScheduled) }

func (r *records) saidOf(typ string) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := map[string]string{}
	add := func(id string, s tko.Stamp) {
		for _, c := range s.Conditions {
			if c.Type != typ {
				continue
			}
			m[id] = fmt.Sprintf("%s %s @%d", c.Status, c.Reason, c.ObservedRevision)
		}
	}
	for id, s := range r.sites {
		add(string(id), s.Stamp)
	}
	for id, d := range r.deployments {
		add(string(id), d.Stamp)
	}
	return m
}

// A runner records the plugins that it is to run.
type runner struct {
	mu   sync.Mutex
	runs []string
	got  map[tko.DeploymentID]krm.Package // at the last run
	err  map[string]error                 // by plugin
}

func (r *runner) Schedule(_ context.Context, p tko.Plugin, target krm.Identity, site tko.Site, deployments map[tko.DeploymentID]krm.Package, _ ...func(string)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for id := range deployments {
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	r.got = deployments
	r.runs = append(r.runs, fmt.Sprintf("%s %s %s %v", p.Name, target.Name, site.ID, ids))
	return r.err[p.Name]
}

var edge = krm.GVK{Group: "edge.plugin.nephio.org", Version: "v1", Kind: "Edge"}

func trigger(name string) krm.Resource {
	return krm.Resource{"apiVersion": edge.APIVersion(), "kind": edge.Kind, "metadata": map[string]any{"name": name}}
}

func repository(url string) krm.Resource {
	return krm.Resource{"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "repo"}, "spec": map[string]any{"url": url}}
}

func site(id tko.SiteID, pkg ...krm.Resource) tko.Site {
	return tko.Site{ID: id, Package: pkg, Stamp: tko.Stamp{Revision: 1}}
}

func deployment(id tko.DeploymentID, at tko.SiteID) tko.Deployment {
	return tko.Deployment{
		ID: id, Site: at, Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 1},
		Package: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": string(id), "namespace": "y"}}},
	}
}

func world(sites []tko.Site, deployments []tko.Deployment, plugins ...tko.Plugin) *records {
	r := &records{sites: map[tko.SiteID]tko.Site{}, deployments: map[tko.DeploymentID]tko.Deployment{}, plugins: plugins, finished: map[string]tko.FinishedWork{}, claimed: map[string]bool{}}
	for _, s := range sites {
		r.sites[s.ID] = s
	}
	for _, d := range deployments {
		r.deployments[d.ID] = d
	}
	return r
}

func plugin(name string, triggers ...krm.GVK) tko.Plugin {
	return tko.Plugin{Type: tko.PluginSchedule, Name: name, Triggers: triggers}
}

func scheduled(revision int64) []tko.Condition {
	return []tko.Condition{healthUnknown(revision), {Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: schedule.ReasonScheduled, Message: `by plugin "schedule|p" for edge.plugin.nephio.org/v1 Edge "e"`, ObservedRevision: revision}}
}

func healthUnknown(revision int64) tko.Condition {
	return tko.Condition{
		Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonHealthNotReported,
		Message: `plugin "schedule|p" for edge.plugin.nephio.org/v1 Edge "e" of site "lagos" reports no health: whether what it has works is not known here`, ObservedRevision: revision,
	}
}

func TestReconciliationRunsTargetsAndWritesConditions(t *testing.T) {
	t.Parallel()
	unapproved, unprepared := deployment("b", "lagos"), deployment("c", "lagos")
	unapproved.Approved, unprepared.Prepared = false, false
	was := func(d tko.Deployment, revision int64) tko.Deployment {
		d.Stamp.Conditions = scheduled(revision)
		return d
	}
	wasSite := func(s tko.Site) tko.Site {
		s.Stamp.Conditions = scheduled(1)
		return s
	}
	away := errors.New("away")
	tests := map[string]struct {
		why     string
		records *records
		fails   map[string]error
		outcome tko.WorkOutcome
		runs    []string
		said    map[string]string
		writes  int // in the first reconciliation; not checked if -1
	}{
		"a site that is gone": {
			why: "nothing is left to do", records: world(nil, nil), outcome: tko.WorkDone, said: map[string]string{},
		},
		"a plain site": {
			why: "nothing was asked of it, so nothing is said", records: world([]tko.Site{site("lagos")}, nil), outcome: tko.WorkDone, said: map[string]string{},
		},
		"only what is prepared and approved": {
			why:     "the promise",
			records: world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos"), unapproved, unprepared, deployment("d", "accra")}, plugin("p", edge)),
			outcome: tko.WorkDone, runs: []string{"p e lagos [a]"}, writes: 2,
			said: map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1"},
		},
		"every trigger and every plugin": {
			why:     "the promise",
			records: world([]tko.Site{site("lagos", trigger("e"), trigger("f"))}, nil, plugin("p", edge), plugin("q", edge), plugin("r", krm.GVK{Version: "v1", Kind: "Edge"})),
			outcome: tko.WorkDone, runs: []string{"p e lagos []", "q e lagos []", "p f lagos []", "q f lagos []"}, writes: 1,
			said: map[string]string{"lagos": "True Scheduled @1"},
		},
		"one fails": {
			why:     "the others still run, and it is tried again",
			records: world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos")}, plugin("p", edge), plugin("q", edge)),
			fails:   map[string]error{"p": away}, outcome: tko.WorkFailed, runs: []string{"p e lagos [a]", "q e lagos [a]"}, writes: 2,
			said: map[string]string{"lagos": "False Failed @1", "a": "False Failed @1"},
		},
		"invalid": {
			why:     "trying again doesn't help: the record says so",
			records: world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{deployment("a", "lagos")}, plugin("p", edge)),
			fails:   map[string]error{"p": tko.Errorf(tko.ErrInvalid, "bad")}, outcome: tko.WorkDone, runs: []string{"p e lagos [a]"}, writes: 2,
			said: map[string]string{"lagos": "False Invalid @1", "a": "False Invalid @1"},
		},
		"invalid and failed": {
			why:     "one of them is worth another try",
			records: world([]tko.Site{site("lagos", trigger("e"))}, nil, plugin("p", edge), plugin("q", edge)),
			fails:   map[string]error{"p": tko.Errorf(tko.ErrInvalid, "bad"), "q": away}, outcome: tko.WorkFailed, runs: []string{"p e lagos []", "q e lagos []"}, writes: 1,
			said: map[string]string{"lagos": "False Invalid @1"},
		},
		"no scheduler": {
			why:     "people wait for something that will not come",
			records: world([]tko.Site{site("lagos")}, []tko.Deployment{deployment("a", "lagos")}, plugin("p", edge)),
			outcome: tko.WorkDone, writes: 2,
			said: map[string]string{"lagos": "False NoScheduler @1", "a": "False NoScheduler @1"},
		},
		"nothing new": {
			why:     "what is said already isn't said again",
			records: world([]tko.Site{wasSite(site("lagos", trigger("e")))}, []tko.Deployment{was(deployment("a", "lagos"), 1)}, plugin("p", edge)),
			outcome: tko.WorkDone, runs: []string{"p e lagos [a]"}, writes: 0,
			said: map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1"},
		},
		"a new revision": {
			why:     "people see that it is this revision that runs",
			records: world([]tko.Site{wasSite(site("lagos", trigger("e")))}, []tko.Deployment{was(deployment("a", "lagos"), 0)}, plugin("p", edge)),
			outcome: tko.WorkDone, runs: []string{"p e lagos [a]"}, writes: 1,
			said: map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1"},
		},
		"unapproved after all": {
			why:     "it was there, and is taken away; what is being prepared again stays",
			records: world([]tko.Site{wasSite(site("lagos", trigger("e")))}, []tko.Deployment{was(unapproved, 1), was(unprepared, 1)}, plugin("p", edge)),
			outcome: tko.WorkDone, runs: []string{"p e lagos [c]"}, writes: 1,
			said: map[string]string{"lagos": "True Scheduled @1", "b": "False Unscheduled @1", "c": "True Scheduled @1"},
		},
		"a failure leaves what is there": {
			why:     "an outage doesn't unschedule what was scheduled as it is",
			records: world([]tko.Site{wasSite(site("lagos", trigger("e")))}, []tko.Deployment{was(deployment("a", "lagos"), 1), deployment("b", "lagos")}, plugin("p", edge)),
			fails:   map[string]error{"p": away}, outcome: tko.WorkFailed, runs: []string{"p e lagos [a b]"}, writes: 2,
			said: map[string]string{"lagos": "False Failed @1", "a": "True Scheduled @1", "b": "False Failed @1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := &runner{err: test.fails}
			s := schedule.New(test.records, run, schedule.Options{})
			got := s.Reconcile(t.Context(), "lagos")
			if got.Outcome != test.outcome || (got.Err != nil) != (test.outcome == tko.WorkFailed) {
				t.Errorf("%s: got %q %v, want %q", test.why, got.Outcome, got.Err, test.outcome)
			}
			if diff := cmp.Diff(test.runs, run.runs); diff != "" {
				t.Errorf("%s: runs: -want +got:\n%s", test.why, diff)
			}
			if diff := cmp.Diff(test.said, test.records.said()); diff != "" {
				t.Errorf("%s: conditions: -want +got:\n%s", test.why, diff)
			}
			if test.records.writes != test.writes {
				t.Errorf("%s: %d writes, want %d", test.why, test.records.writes, test.writes)
			}
			s.Reconcile(t.Context(), "lagos")
			if test.records.writes != test.writes {
				t.Errorf("%s: looking again wrote again", test.why)
			}
		})
	}
}

func TestDeploymentsAreCommittedAndRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lagos, accra := filepath.Join(dir, "lagos"), filepath.Join(dir, "accra")
	r := world(
		[]tko.Site{site("lagos", repository(lagos)), site("accra", repository(accra)), site("bad", repository("ftp://x"))},
		[]tko.Deployment{deployment("a", "lagos"), deployment("b", "lagos"), deployment("c", "bad")},
	)
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()})
	reconcile := func(want map[string]string) {
		t.Helper()
		for _, id := range []tko.SiteID{"lagos", "accra", "bad"} {
			if got := s.Reconcile(t.Context(), id); got.Outcome != tko.WorkDone {
				t.Fatalf("%s: %q %v", id, got.Outcome, got.Err)
			}
		}
		want["bad"], want["c"], want["accra"], want["lagos"] = "False Invalid @1", "False Invalid @1", "True Scheduled @1", "True Scheduled @1"
		if diff := cmp.Diff(want, r.said()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	reconcile(map[string]string{"a": "True Scheduled @1", "b": "True Scheduled @1"})

	moved, nowhere := r.deployments["a"], r.deployments["b"]
	moved.Site, moved.Stamp.Revision = "accra", 2
	nowhere.Site, nowhere.Stamp.Revision = "", 2
	r.deployments["a"], r.deployments["b"] = moved, nowhere
	reconcile(map[string]string{"a": "True Scheduled @2", "b": "False Unscheduled @2"})
	for _, repo := range []string{lagos, accra} {
		if _, err := os.Stat(filepath.Join(repo, "refs", "heads", "main")); err != nil {
			t.Error(err)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

func TestDeploymentsAreAppliedHeldAndRemoved(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t, kube.Options{})
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	away := []byte(strings.ReplaceAll(string(text), c.URL(), "https://127.0.0.1:1"))
	for name, data := range map[string][]byte{"lagos": text, "accra": away} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func(name string) krm.Resource {
		return krm.Resource{
			"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
			"spec": map[string]any{"kubeconfig": map[string]any{"file": name}},
		}
	}
	in := func(d tko.Deployment) tko.Deployment {
		d.Package = krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "of-" + string(d.ID)}}}
		return d
	}
	r := world(
		[]tko.Site{site("lagos", cluster("lagos")), site("accra", cluster("accra"))},
		[]tko.Deployment{in(deployment("a", "lagos")), in(deployment("b", "lagos")), in(deployment("c", "accra"))},
	)
	s := schedule.New(r, &runner{}, schedule.Options{Kubernetes: clusters(kubernetes.Options{Kubeconfigs: dir, Interval: time.Hour})})
	defer s.Close()
	there := func() string {
		return strings.TrimSpace(c.Kubectl(t, "get", "configmaps", "-l", kubernetes.LabelDeployment, "-o", "name"))
	}
	reconcile := func(why string, scheduled, healthy map[string]string) {
		t.Helper()
		got := s.Reconcile(t.Context(), "lagos")
		if got.Outcome != tko.WorkLater || got.Retry < 50*time.Minute || got.Retry > 70*time.Minute {
			t.Errorf("%s: %v", why, got)
		}
		got = s.Reconcile(t.Context(), "accra")
		if got.Outcome != tko.WorkFailed || got.Err == nil || got.Retry == 0 {
			t.Errorf("%s: %v", why, got)
		}
		scheduled["lagos"], healthy["lagos"] = "True Scheduled @1", "True Healthy @1"
		scheduled["accra"], healthy["accra"] = "False Failed @1", "Unknown Unreachable @1"
		scheduled["c"], healthy["c"] = "False Failed @1", "Unknown Unreachable @1"
		if diff := cmp.Diff(scheduled, r.said()); diff != "" {
			t.Errorf("%s: scheduled: -want +got:\n%s", why, diff)
		}
		if diff := cmp.Diff(healthy, r.saidOf(tko.ConditionHealthy)); diff != "" {
			t.Errorf("%s: healthy: -want +got:\n%s", why, diff)
		}
		writes := r.writes
		s.Reconcile(t.Context(), "lagos")
		s.Reconcile(t.Context(), "accra")
		if r.writes != writes {
			t.Errorf("%s: looking again wrote again", why)
		}
	}
	good := map[string]string{"a": "True Healthy @1", "b": "True Healthy @1"}
	reconcile("two come", map[string]string{"a": "True Applied @1", "b": "True Applied @1"}, maps.Clone(good))
	if got := there(); got != "configmap/of-a\nconfigmap/of-b" {
		t.Errorf("two come: %q", got)
	}
	again, gone := r.deployments["a"], r.deployments["b"]
	again.Prepared, gone.Approved = false, false
	r.deployments["a"], r.deployments["b"] = again, gone
	reconcile("one is prepared again, one was unapproved", map[string]string{"a": "True Applied @1", "b": "False Unscheduled @1"},
		map[string]string{"a": "True Healthy @1", "b": "Unknown Unscheduled @1"})
	if got := there(); got != "configmap/of-a" {
		t.Errorf("one is prepared again, one was unapproved: %q", got)
	}
}

func TestFailedReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := world([]tko.Site{site("lagos", trigger("e"))}, nil, plugin("p", edge))
	r.fail = errors.New("connection lost")
	run := &runner{}
	got := schedule.New(r, run, schedule.Options{}).Reconcile(t.Context(), "lagos")
	if got.Outcome != tko.WorkFailed || !errors.Is(got.Err, r.fail) {
		t.Errorf("got %q %v", got.Outcome, got.Err)
	}
	if len(run.runs) > 0 || r.writes > 0 {
		t.Error("acted on half of what there is: deployments would go from the site")
	}
}

func TestFailedSiteStopsNoOtherAndRunEnds(t *testing.T) {
	t.Parallel()
	r := world(nil, nil, plugin("p", edge))
	want := map[string]tko.WorkOutcome{"gone": tko.WorkDone}
	r.queue = append(r.queue, tko.WorkItem{Queue: tko.QueueSchedule, Key: "gone"})
	for i := range 50 {
		id := tko.SiteID(fmt.Sprintf("site%d", i))
		s := site(id, trigger("e"))
		want[string(id)] = tko.WorkDone
		if i%5 == 0 {
			s = site(id, repository("/dev/null/x"))
			want[string(id)] = tko.WorkFailed
		}
		r.sites[id] = s
		r.queue = append(r.queue, tko.WorkItem{Queue: tko.QueueSchedule, Key: string(id)})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()}).Run(ctx) }()
	got := map[string]tko.WorkOutcome{}
	eventually.True(t, "the work of all sites is finished", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for key, w := range r.finished {
			got[key] = w.Outcome
		}
		return len(got) >= len(want)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
