package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// A fakeReleases has one release, whose only object is the pod web, in a cluster without
// Helm.
type fakeReleases struct {
	cluster  *cluster
	calls    []string
	revision int
	phase    string // of the pod after a deployment
	fault    string // of the tests
	err      error  // of all calls
}

func (f *fakeReleases) pod() map[string]any {
	status := map[string]any{"phase": f.phase}
	if f.phase == "Failed" {
		status["conditions"] = []any{map[string]any{"type": "Stalled", "status": "True", "reason": "Test"}}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "status": status,
		"metadata": map[string]any{"name": "web", "namespace": "n", "labels": map[string]any{LabelDeployment: "a"}},
	}
}

// put makes the pod what a deployment makes it.
func (f *fakeReleases) put(ctx context.Context) error {
	pods := f.cluster.dynamic.Resource(pods).Namespace("n")
	if err := pods.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err := pods.Create(ctx, &unstructured.Unstructured{Object: f.pod()}, metav1.CreateOptions{})
	return err
}

func (f *fakeReleases) Deploy(ctx context.Context, _ *chart.Chart, s chart.State, to chart.Release) (chart.Result, error) {
	f.calls = append(f.calls, "deploy "+to.Namespace+"/"+to.Name+" of "+to.Owner)
	if f.err != nil {
		return chart.Result{State: s}, f.err
	}
	if err := errors.Join(to.Prepare(ctx), f.put(ctx)); err != nil {
		return chart.Result{State: s}, err
	}
	f.revision++
	s.Previous, s.Revision, s.Since, s.Healthy = s.Revision, f.revision, time.Now().Unix(), false
	return chart.Result{State: s, Objects: []map[string]any{f.pod()}}, nil
}

func (f *fakeReleases) Rollback(ctx context.Context, _ *chart.Chart, s chart.State, _, _ string) (chart.Result, error) {
	f.calls = append(f.calls, "rollback")
	f.phase = "Succeeded"
	f.revision++
	s.Previous, s.Revision, s.Healthy, s.Tested = s.Revision, f.revision, true, f.revision
	return chart.Result{State: s, Objects: []map[string]any{f.pod()}, Problem: s.RolledBack(), Invalid: true}, errors.Join(f.err, f.put(ctx))
}

func (f *fakeReleases) Test(_ context.Context, _ *chart.Chart, s chart.State, _, _ string) (chart.State, error) {
	f.calls = append(f.calls, "test")
	if f.err == nil {
		s.Tested, s.Fault = s.Revision, f.fault
	}
	return s, f.err
}

func (f *fakeReleases) Objects(context.Context, string, string) ([]map[string]any, error) {
	f.calls = append(f.calls, "objects")
	if f.revision == 0 {
		return nil, tko.ErrNotFound
	}
	return []map[string]any{f.pod()}, f.err
}

func (f *fakeReleases) Uninstall(ctx context.Context, _, _ string, owned func(string) bool) error {
	f.calls = append(f.calls, "uninstall")
	if f.err != nil || !owned("a") || owned("b") {
		return f.err
	}
	return f.cluster.dynamic.Resource(pods).Namespace("n").Delete(ctx, "web", metav1.DeleteOptions{})
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// A chartWorld reconciles a site with a HelmChart, in a fake cluster.
type chartWorld struct {
	*fakeReleases

	t      *testing.T
	target *Target
}

func newChartWorld(t *testing.T) *chartWorld {
	t.Helper()
	gv := schema.GroupVersion{Version: "v1"}
	kinds := map[string]kind{}
	lists := map[schema.GroupVersionResource]string{}
	for name, r := range map[string]schema.GroupVersionResource{"Pod": pods, "ConfigMap": configMaps, "Namespace": namespaces, "Secret": secrets} {
		kinds[name] = kind{resource: r, namespaced: name != "Namespace"}
		lists[r] = name + "List"
	}
	c := &cluster{dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), kinds: map[schema.GroupVersion]map[string]kind{gv: kinds}}
	w := &chartWorld{fakeReleases: &fakeReleases{cluster: c, phase: "Succeeded"}, t: t, target: New(Options{})}
	t.Cleanup(w.target.Close)
	return w
}

// reconcile reconciles the site, and returns the calls and the report.
func (w *chartWorld) reconcile(drift string, specs ...string) (calls []string, r report.Report, err error) {
	w.t.Helper()
	w.calls = nil
	rc := &reconciliation{
		target: w.target, conn: w.cluster, own: w.cluster, releases: w.fakeReleases, site: tko.Site{ID: "s"},
		spec: spec{Namespace: "n", Inventory: "tko", Drift: drift, Budget: prune.Budget{Count: 100, Percent: 100}},
	}
	for _, text := range specs {
		pkg, err := krm.Decode(krm.YAML, []byte("{apiVersion: workload.nephio.org/v1alpha1, kind: HelmChart, metadata: {name: web}, spec: {repository: 'https://example.com', "+text+"}}"), krm.Limits{})
		if err != nil {
			w.t.Fatal(err)
		}
		rc.deployments = append(rc.deployments, tko.Deployment{ID: "a", Package: pkg})
	}
	if err := rc.run(w.t.Context()); err != nil {
		return w.calls, report.Report{}, err
	}
	r, err = rc.report()
	return w.calls, r, err
}

// expect reconciles the site with these calls, and returns the conditions.
func (w *chartWorld) expect(want, drift string, specs ...string) report.State {
	w.t.Helper()
	calls, r, err := w.reconcile(drift, specs...)
	if got := strings.Join(calls, ", "); got != want {
		w.t.Errorf("the calls are %q, not %q: %v", got, want, err)
	}
	return r.Deployments["a"]
}

func (w *chartWorld) said(s report.State, scheduled, healthy, text string) {
	w.t.Helper()
	if s.Scheduled.Reason != scheduled || s.Healthy.Reason != healthy || !strings.Contains(s.Scheduled.Message+"\n"+s.Scheduled.Note+"\n"+s.Healthy.Message, text) {
		w.t.Errorf("the conditions are %+v, not %s and %s with %q", s, scheduled, healthy, text)
	}
}

func TestReleasesAreDeployedTestedAndUninstalled(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	const tested = "chart: c, test: {enable: true}"
	w.said(w.expect("deploy n/web of a, test", trigger.DriftCorrect, tested), trigger.ReasonApplied, trigger.ReasonHealthy, "1 objects and 1 Helm chart are as they should be")
	w.said(w.expect("", trigger.DriftCorrect, tested), trigger.ReasonApplied, trigger.ReasonHealthy, "1 objects are healthy")
	w.fault = "no route"
	w.said(w.expect("deploy n/web of a, test", trigger.DriftCorrect, tested+", version: '2'"), trigger.ReasonApplied, trigger.ReasonUnhealthy, "failed its test: no route")
	w.said(w.expect("", trigger.DriftCorrect, tested+", version: '2'"), trigger.ReasonApplied, trigger.ReasonUnhealthy, "failed its test: no route")
	w.expect("uninstall", trigger.DriftCorrect)
	if left, err := w.cluster.list(t.Context(), configMaps, "tko", labelInventory); err != nil || len(left) > 0 {
		t.Errorf("inventories are left: %v %v", left, err)
	}
	if pod, err := w.cluster.get(t.Context(), key{Kind: "Pod", Namespace: "n", Name: "web"}, "v1"); err != nil || pod != nil {
		t.Errorf("the pod is left: %v %v", pod, err)
	}
}

func TestFailedUpgradesAreRolledBackOnce(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c")
	w.phase = "Failed"
	const bad = "chart: c, version: '2'"
	w.said(w.expect("deploy n/web of a, rollback", trigger.DriftCorrect, bad), trigger.ReasonInvalid, trigger.ReasonUnhealthy, "was rolled back after a failed upgrade: ")
	w.said(w.expect("", trigger.DriftCorrect, bad), trigger.ReasonInvalid, trigger.ReasonUnhealthy, "was rolled back after a failed upgrade: ")
	w.said(w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c, version: '3'"), trigger.ReasonApplied, trigger.ReasonHealthy, "")
}

// If the cluster can't be reached at the rollback, it is done later, without an upgrade.
func TestInterruptedRollbackContinues(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c")
	w.phase = "Running"
	const bad = "chart: c, version: '2'"
	w.said(w.expect("deploy n/web of a", trigger.DriftCorrect, bad), trigger.ReasonApplied, trigger.ReasonInProgress, "")
	w.phase = "Failed"
	if err := w.put(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.err = context.DeadlineExceeded
	calls, _, err := w.reconcile(trigger.DriftCorrect, bad)
	if !slices.Equal(calls, []string{"rollback"}) || !errors.Is(err, w.err) {
		t.Fatalf("the calls are %v: %v", calls, err)
	}
	w.err = nil
	w.said(w.expect("rollback", trigger.DriftCorrect, bad), trigger.ReasonInvalid, trigger.ReasonUnhealthy, "was rolled back after a failed upgrade: ")
	w.said(w.expect("", trigger.DriftCorrect, bad), trigger.ReasonInvalid, trigger.ReasonUnhealthy, "")
}

func TestUninstalledReleasesFollowThePolicy(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c")
	if err := w.cluster.dynamic.Resource(pods).Namespace("n").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.revision = 0
	w.said(w.expect("", trigger.DriftIgnore, "chart: c"), trigger.ReasonApplied, trigger.ReasonUnhealthy, "is missing")
	w.said(w.expect("objects", trigger.DriftReport, "chart: c"), trigger.ReasonDrifted, trigger.ReasonUnhealthy, "is missing")
	w.said(w.expect("objects, deploy n/web of a", trigger.DriftCorrect, "chart: c"), trigger.ReasonApplied, trigger.ReasonHealthy, "was uninstalled")
}

func TestErrorsOfReleasesAreOfTheClusterOrOfTheChart(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	w.err = errors.New("quota")
	w.said(w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c"), trigger.ReasonFailed, trigger.ReasonUnhealthy, "quota")
	w.err = context.DeadlineExceeded
	if calls, _, err := w.reconcile(trigger.DriftCorrect, "chart: c"); !errors.Is(err, w.err) {
		t.Errorf("the cluster is unreachable, and the reconciliation continues: %v %v", calls, err)
	}
	w.err = nil
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c")
	w.err = errors.New("refused")
	w.said(w.expect("test", trigger.DriftCorrect, "chart: c, test: {enable: true}"), trigger.ReasonFailed, trigger.ReasonUnhealthy, "refused")
	if calls, r, err := w.reconcile(trigger.DriftCorrect); err != nil || !slices.Equal(calls, []string{"uninstall"}) || r.Site.Scheduled.Reason != trigger.ReasonRemoving {
		t.Errorf("it is removed later: %v %+v %v", calls, r, err)
	}
}

// Charts whose values can't be read stay as they are, and the objects of their release with
// them.
func TestChartsWithoutTheirValuesStay(t *testing.T) {
	t.Parallel()
	w := newChartWorld(t)
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c")
	s := w.expect("", trigger.DriftCorrect, "chart: c, valuesFrom: [{kind: Secret, name: x}]")
	if s.Scheduled.Reason != trigger.ReasonFailed || !strings.Contains(s.Scheduled.Message, `HelmChart.workload.nephio.org "n/web" can't be deployed: spec.valuesFrom[0]: Secret "n/x"`) {
		t.Errorf("the condition is %+v", s.Scheduled)
	}
	if pod, err := w.cluster.get(t.Context(), key{Kind: "Pod", Namespace: "n", Name: "web"}, "v1"); err != nil || pod == nil {
		t.Errorf("the pod is gone: %v", err)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "x", "namespace": "n"}, "data": map[string]any{"values.yaml": "YTogMQ=="},
	}}
	if _, err := w.cluster.dynamic.Resource(secrets).Namespace("n").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expect("deploy n/web of a", trigger.DriftCorrect, "chart: c, valuesFrom: [{kind: Secret, name: x}]")
	w.expect("", trigger.DriftCorrect, "chart: c, valuesFrom: [{kind: Secret, name: x}]")
}
