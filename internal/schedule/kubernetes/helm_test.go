package kubernetes_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm/helmtest"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A helmWorld is a world with a folder of charts.
type helmWorld struct {
	*world
	charts string
}

func newHelmWorld(t *testing.T, o kubernetes.Options) *helmWorld {
	t.Helper()
	w := &helmWorld{charts: t.TempDir()}
	o.Charts = w.charts
	w.world = newWorld(t, o)
	return w
}

const webMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {mode: {{ .Values.mode | quote }}, count: {{ .Values.count | quote }}, chart: {{ .Chart.Version | quote }}}
`

// chart writes a version of the chart web: its files, in addition to Chart.yaml and
// values.yaml.
func (w *helmWorld) chart(version string, files map[string]string) {
	w.t.Helper()
	all := map[string]string{
		"Chart.yaml":  fmt.Sprintf("{apiVersion: v2, name: web, version: %s}", version),
		"values.yaml": "{mode: default, count: 1}",
	}
	maps.Copy(all, files)
	dir := filepath.Join(w.charts, "web")
	if err := os.RemoveAll(dir); err != nil {
		w.t.Fatal(err)
	}
	for file, text := range all {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// release returns a HelmChart with the chart of the same name.
func release(name string, parameters map[string]any) krm.Resource {
	r := resource("workload.nephio.org/v1alpha1", "HelmChart", name)
	r["spec"] = map[string]any{"chart": name}
	if parameters != nil {
		r.Set(parameters, "spec", "parameters")
	}
	return r
}

// revisions returns the revisions of the release web that Helm stores, such as "1
// superseded".
func (w *helmWorld) revisions() []string {
	w.t.Helper()
	list, err := w.at("Secret").List(w.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=web"})
	if err != nil {
		w.t.Fatal(err)
	}
	all := []string{}
	for _, r := range list.Items {
		all = append(all, r.GetLabels()["version"]+" "+r.GetLabels()["status"])
	}
	slices.Sort(all)
	return all
}

func (w *helmWorld) data(name, key string) string {
	w.t.Helper()
	return w.must("ConfigMap", name).Text("data", key)
}

// quiet reconciles the site. It must not write, and must need exactly the given
// number of requests.
func (w *helmWorld) quiet(requests int64, deployments ...tko.Deployment) report.Report {
	w.t.Helper()
	w.gate.requests.Store(0)
	w.gate.writes.Store(0)
	r, _ := w.schedule(w.t.Context(), deployments...)
	if n := w.gate.writes.Load(); n > 0 {
		w.t.Errorf("%d writes without a change", n)
	}
	if n := w.gate.requests.Load(); n != requests {
		w.t.Errorf("%d requests without a change, want %d", n, requests)
	}
	return r
}

func TestChartIsInstalledUpgradedMovedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap, "templates/second.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: second}}"})
	web := release("web", map[string]any{"mode": "{{ get('', 'v1', 'ConfigMap', 'plain').data.key + '!' }}", "count": int64(12345678)})
	a := deployment("a", configMap("plain", "1"), web)

	r := w.reconcile(a)
	same(t, "said", report.Outcome{Status: "True", Reason: "Applied", Message: "3 objects and 1 Helm chart are as they should be"}, r.Deployments["a"].Scheduled)
	same(t, "health", "3 objects are healthy", r.Deployments["a"].Healthy.Message)
	same(t, "an expression", "1!", w.data("web", "mode"))
	same(t, "a number", "12345678", w.data("web", "count"))
	same(t, "what is there", []string{"plain", "second", "web"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap plain", "a ConfigMap second", "a ConfigMap web", "a HelmChart web"}, w.inventory())
	same(t, "revisions", []string{"1 deployed"}, w.revisions())

	r = w.quiet(2, a) // the inventories and the ConfigMaps
	same(t, "said", "True", r.Deployments["a"].Scheduled.Status)

	// Values, also computed from other resources of the package.
	a = deployment("a", configMap("plain", "2"), web)
	w.reconcile(a)
	same(t, "an expression", "2!", w.data("web", "mode"))
	same(t, "revisions", []string{"1 superseded", "2 deployed"}, w.revisions())
	w.quiet(2, a)

	// A removed value returns to the chart's default.
	a = deployment("a", configMap("plain", "2"), release("web", nil))
	w.reconcile(a)
	same(t, "a default", "default", w.data("web", "mode"))

	// Helm removes an object that left the chart, and the inventory forgets it.
	w.chart("1.1.0", map[string]string{"templates/map.yaml": webMap})
	w.reconcile(a)
	same(t, "chart", "1.1.0", w.data("web", "chart"))
	same(t, "what is there", []string{"plain", "web"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap plain", "a ConfigMap web", "a HelmChart web"}, w.inventory())
	w.quiet(2, a)

	// The release moves to another deployment without being removed.
	uid := w.must("ConfigMap", "web").Text("metadata", "uid")
	a, b := deployment("a", configMap("plain", "2")), deployment("b", release("web", nil))
	w.reconcile(a, b)
	same(t, "the same object", uid, w.must("ConfigMap", "web").Text("metadata", "uid"))
	same(t, "inventory", []string{"a ConfigMap plain", "b ConfigMap web", "b HelmChart web"}, w.inventory())

	r = w.reconcile(a)
	same(t, "removed", []tko.DeploymentID{"b"}, r.Removed)
	same(t, "what is there", []string{"plain"}, w.there("ConfigMap"))
	same(t, "revisions", []string{}, w.revisions())
	same(t, "inventory", []string{"a ConfigMap plain"}, w.inventory())
}

// A release is in the namespace of its HelmChart, which is created.
func TestNamespaceOfChartIsCreated(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	web := release("web", nil)
	web.Set(w.ns+"-apps", "metadata", "namespace")
	w.reconcile(deployment("a", web))
	w.ns += "-apps"
	same(t, "what is there", []string{"web"}, w.there("ConfigMap"))
	same(t, "revisions", []string{"1 deployed"}, w.revisions())
}

// A meta-scheduler that died after an upgrade, before it wrote the inventory, causes
// no second upgrade.
func TestDeployedChartIsNotUpgradedAgainAfterLostInventory(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	w.reconcile(deployment("a", release("web", nil)))
	w.gate.writes.Store(0)
	w.reconcile(deployment("a", release("web", map[string]any{"mode": "two"})))
	w.gate.last.Store(w.gate.writes.Swap(0) - 1)
	three := deployment("a", release("web", map[string]any{"mode": "three"}))
	if _, err := w.schedule(t.Context(), three); err == nil {
		t.Fatal("the inventory was written although the writes were rejected")
	}
	w.gate.last.Store(-1)
	w.gate.dead.Store(false)
	w.reconcile(three)
	same(t, "revisions", []string{"1 superseded", "2 superseded", "3 deployed"}, w.revisions())
	same(t, "mode", "three", w.data("web", "mode"))
	w.quiet(2, three)
}

// An upgrade that the API server rejects is rolled back, and not retried.
func TestRejectedUpgradeIsRolledBack(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Values.name | default "second" }}"}}`})
	a := deployment("a", release("web", map[string]any{"mode": "one"}))
	w.reconcile(a)
	bad := deployment("a", release("web", map[string]any{"mode": "two", "name": "Bad_Name"}))
	r, err := w.schedule(t.Context(), bad)
	same(t, "said", "False Invalid", said(r)["a"])
	if text := r.Deployments["a"].Scheduled.Message; err == nil || !strings.Contains(text, `HelmChart.workload.nephio.org "`+w.ns+`/web" was rolled back after a failed upgrade: `) || !strings.Contains(text, "Bad_Name") || !strings.Contains(text, chart.AnnotationRetry) {
		t.Errorf("%v: %s", err, text)
	}
	same(t, "as before", "one", w.data("web", "mode"))
	same(t, "revisions", []string{"1 superseded", "2 failed", "3 deployed"}, w.revisions())
	same(t, "what is there", []string{"second", "web"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap second", "a ConfigMap web", "a HelmChart web"}, w.inventory())

	r = w.quiet(2, bad)
	same(t, "still said", "False Invalid", said(r)["a"])

	bad.Package[1] = annotated(bad.Package[1], chart.AnnotationRetry, "1")
	_, _ = w.schedule(t.Context(), bad)
	same(t, "tried again", []string{"1 superseded", "2 failed", "3 superseded", "4 failed", "5 deployed"}, w.revisions())

	r = w.reconcile(deployment("a", release("web", map[string]any{"mode": "three"})))
	same(t, "said", "True Applied", said(r)["a"])
	same(t, "upgraded", "three", w.data("web", "mode"))
}

// The objects of a failed first installation are removed, and the installation is
// retried.
func TestFailedInstallationIsRemovedAndRetried(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	second := `{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}}`
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": fmt.Sprintf(second, "Bad_Name")})
	a := deployment("a", release("web", nil), configMap("other", "1"))
	r, err := w.schedule(t.Context(), a)
	same(t, "said", "False Failed", said(r)["a"])
	same(t, "health", "Unhealthy", r.Deployments["a"].Healthy.Reason)
	if err == nil || !strings.Contains(err.Error(), "Bad_Name") {
		t.Error(err)
	}
	same(t, "what is there", []string{"other"}, w.there("ConfigMap"))
	same(t, "revisions", []string{}, w.revisions())
	same(t, "it is tried again with the back-off of failures", 0, r.Requeue)
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": fmt.Sprintf(second, "good")})
	w.reconcile(a)
	same(t, "what is there", []string{"good", "other", "web"}, w.there("ConfigMap"))
}

// A problem of a chart, its values or its origin changes nothing.
func TestInvalidChartChangesNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		change func(*helmWorld, krm.Resource)
		want   string
		reason string
	}{
		"template": {
			why: "templates fail",
			change: func(w *helmWorld, _ krm.Resource) {
				w.chart("2.0.0", map[string]string{"templates/a.yaml": `{{ fail "no luck" }}`})
			},
			want: "no luck", reason: "Invalid",
		},
		"schema": {
			why: "values are checked",
			change: func(w *helmWorld, _ krm.Resource) {
				w.chart("2.0.0", map[string]string{"templates/a.yaml": webMap, "values.schema.json": `{"properties": {"mode": {"type": "integer"}}}`})
			},
			want: "mode", reason: "Invalid",
		},
		"expression": {
			why:    "expressions fail",
			change: func(_ *helmWorld, r krm.Resource) { r.Set("{{ unknown }}", "spec", "parameters", "mode") },
			want:   "spec.parameters.mode", reason: "Invalid",
		},
		"not there": {
			why:    "the chart may be added later",
			change: func(_ *helmWorld, r krm.Resource) { r.Set("nowhere", "spec", "chart") },
			want:   `"nowhere" in the folder of charts`, reason: "Failed",
		},
		"out of the folder": {
			why:    "paths must not lead out of the folder",
			change: func(_ *helmWorld, r krm.Resource) { r.Set("../web", "spec", "chart") },
			want:   "is not below the meta-scheduler's folder of charts", reason: "Invalid",
		},
		"name": {
			why:    "Helm allows fewer names than Kubernetes",
			change: func(_ *helmWorld, r krm.Resource) { r.Set("web.Web", "metadata", "name") },
			want:   "has a name that is not valid for a Helm release", reason: "Invalid",
		},
		"long name": {
			why:    "Helm allows fewer names than Kubernetes",
			change: func(_ *helmWorld, r krm.Resource) { r.Set(strings.Repeat("a", 54), "metadata", "name") },
			want:   "has a name that is not valid for a Helm release", reason: "Invalid",
		},
		"namespace": {
			why:    "it is made",
			change: func(_ *helmWorld, r krm.Resource) { r.Set("A", "metadata", "namespace") },
			want:   `has the namespace "A", which is not a valid name`, reason: "Invalid",
		},
		"order": {
			why:    "it is a number",
			change: func(_ *helmWorld, r krm.Resource) { r.SetAnnotation(kubernetes.AnnotationOrder, "first") },
			want:   "must be a whole number", reason: "Invalid",
		},
		"kind": {
			why: "definitions may come",
			change: func(w *helmWorld, _ krm.Resource) {
				w.chart("2.0.0", map[string]string{"templates/a.yaml": `{apiVersion: nowhere.example.com/v1, kind: Thing, metadata: {name: a}}`})
			},
			want: `no matches for kind "Thing"`, reason: "Failed",
		},
	}
	w := newHelmWorld(t, kubernetes.Options{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap})
			w.reconcile(deployment("a", release("web", nil)))
			before := w.must("ConfigMap", "web").Text("metadata", "uid")
			web := release("web", nil)
			test.change(w, web)
			r, err := w.schedule(t.Context(), deployment("a", web))
			if err == nil || !strings.Contains(err.Error(), test.want) || r.Deployments["a"].Scheduled.Reason != test.reason {
				t.Errorf("%s: %s: %v", test.why, r.Deployments["a"].Scheduled.Reason, err)
			}
			same(t, "the release stays", before, w.must("ConfigMap", "web").Text("metadata", "uid"))
			if n := w.revisions(); !slices.ContainsFunc(n, func(s string) bool { return strings.HasSuffix(s, "deployed") }) {
				t.Error(n)
			}
		})
	}
}

const webDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, mode: {{ .Values.mode | quote }}}}
    spec: {containers: [{name: c, image: "i:1"}]}
`

// rolledOut sets the status of the Deployment as its controller would.
func (w *helmWorld) rolledOut(more string) {
	w.t.Helper()
	generation, _ := w.must("Deployment", "web").Get("metadata", "generation")
	w.patch("Deployment", "web", fmt.Sprintf(`{"status": {"observedGeneration": %v, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}, %s]}}`, generation, more), "status")
}

const (
	progressed = `{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}`
	stuck      = `{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "no room"}`
)

// The upgrade is applied, but its objects don't become healthy.
func TestUnhealthyUpgradeIsRolledBack(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"it fails": false, "it takes too long": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := kubernetes.Options{}
			if late {
				o.ChartTimeout = time.Nanosecond
			}
			w := newHelmWorld(t, o)
			w.chart("1.0.0", map[string]string{"templates/a.yaml": webDeployment})
			mode := func() string {
				return w.must("Deployment", "web").Text("spec", "template", "metadata", "labels", "mode")
			}
			a := deployment("a", release("web", map[string]any{"mode": "one"}))
			r := w.reconcile(a)
			same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
			w.reconcile(a)
			same(t, "a first installation stays", []string{"1 deployed"}, w.revisions())
			w.rolledOut(progressed)
			r = w.reconcile(a)
			same(t, "health", "Healthy", r.Deployments["a"].Healthy.Reason)

			// A release that was healthy and then fails is not rolled back.
			w.rolledOut(stuck)
			w.reconcile(a)
			same(t, "revisions", []string{"1 deployed"}, w.revisions())
			w.rolledOut(progressed)

			b := deployment("a", release("web", map[string]any{"mode": "two"}))
			if !late {
				r = w.reconcile(b)
				same(t, "said", "True Applied", said(r)["a"])
				same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
				w.rolledOut(stuck)
			}
			r, err := w.schedule(t.Context(), b)
			if err == nil || !strings.Contains(err.Error(), `was rolled back after a failed upgrade: Deployment.apps "`+w.ns+`/web": `) {
				t.Error(err)
			}
			same(t, "said", "False Invalid", said(r)["a"])
			same(t, "revisions", []string{"1 superseded", "2 superseded", "3 deployed"}, w.revisions())
			same(t, "as before", "one", mode())
			w.rolledOut(progressed)
			r = w.quiet(2, b)
			same(t, "still said", "False Invalid", said(r)["a"])
			w.reconcile(a)
			same(t, "as before", "one", mode())
			if late {
				return
			}
			c := deployment("a", release("web", map[string]any{"mode": "three"}))
			w.reconcile(c)
			w.rolledOut(progressed)
			w.reconcile(c)
			w.rolledOut(stuck)
			r = w.reconcile(c)
			same(t, "healthy once, and stays", "three", mode())
			same(t, "health", "Unhealthy", r.Deployments["a"].Healthy.Reason)
		})
	}
}

func TestDriftOfReleaseIsHandledByPolicy(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: second}}"})
	a := deployment("a", release("web", nil))
	w.reconcile(a)
	w.patch("ConfigMap", "web", `{"data": {"mode": "test"}}`)
	w.delete("ConfigMap", "second")
	w.set("Report", "drift")
	r := w.reconcile(a)
	same(t, "said", "False Drifted", said(r)["a"])
	same(t, "what", fmt.Sprintf(`ConfigMap "%s/second" is missing; ConfigMap "%s/web" /data/mode is "test", should be "default"`, w.ns, w.ns), inOrder(r.Deployments["a"].Scheduled.Message))
	w.set("Ignore", "drift")
	w.reconcile(a)
	same(t, "left", "test", w.data("web", "mode"))
	w.set("Correct", "drift")
	r = w.reconcile(a)
	if note := r.Deployments["a"].Scheduled.Note; !strings.Contains(note, `/data/mode is "test"`) || !strings.Contains(note, "second\" was missing") {
		t.Error(note)
	}
	same(t, "corrected", "default", w.data("web", "mode"))
	same(t, "as Helm left it", "Helm", w.must("ConfigMap", "second").Text("metadata", "labels", "app.kubernetes.io/managed-by"))
	same(t, "no new revision", []string{"1 deployed"}, w.revisions())
	w.quiet(2, a)

	// Another user uninstalls the release.
	w.delete("ConfigMap", "web")
	w.delete("ConfigMap", "second")
	w.delete("Secret", "sh.helm.release.v1.web.v1")
	w.set("Report", "drift")
	r = w.reconcile(a)
	same(t, "said", "False Drifted", said(r)["a"])
	w.set("Correct", "drift")
	r = w.reconcile(a)
	if note := r.Deployments["a"].Scheduled.Note; !strings.Contains(note, "was uninstalled") {
		t.Error(note)
	}
	same(t, "installed again", []string{"1 deployed"}, w.revisions())
	same(t, "what is there", []string{"second", "web"}, w.there("ConfigMap"))
}

func inOrder(text string) string {
	parts := strings.Split(text, "; ")
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// The removal of a release counts all its objects. Objects with prune: Never stay.
func TestRemovedReleaseCountsItsObjects(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": "{{ range until 30 }}---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c{{ . }}}}\n{{ end }}"})
	w.reconcile(deployment("a", release("web", nil)), deployment("b", configMap("other", "1")))
	r := w.reconcile(deployment("b", configMap("other", "1")))
	same(t, "said", "WaitsForApproval", r.Site.Scheduled.Reason)
	if !strings.Contains(r.Site.Scheduled.Message, "31 of 32 objects would be removed") {
		t.Error(r.Site.Scheduled.Message)
	}
	same(t, "what is there", 31, len(w.there("ConfigMap")))
	_, digest, _ := strings.Cut(r.Site.Scheduled.Message, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)
	w.set(digest, "prune", "approve")
	w.reconcile(deployment("b", configMap("other", "1")))
	same(t, "what is there", []string{"other"}, w.there("ConfigMap"))
	same(t, "revisions", []string{}, w.revisions())

	w.chart("2.0.0", map[string]string{
		"templates/a.yaml": webMap, "templates/b.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: data, annotations: {tko.nephio.org/prune: Never}}}`,
		"templates/c.yaml": `{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}}`,
	})
	w.reconcile(deployment("a", release("web", nil)))
	w.reconcile(deployment("a", annotated(release("web", nil), kubernetes.AnnotationPrune, "Never")))
	same(t, "no upgrade for that", []string{"1 deployed"}, w.revisions())
	r = w.reconcile()
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "all of it stays", []string{"data", "kept", "web"}, w.there("ConfigMap"))
	same(t, "inventory", []string{}, w.inventory())
	w.reconcile(deployment("a", release("web", nil)))
	w.reconcile()
	same(t, "some stay", []string{"data", "kept"}, w.there("ConfigMap"))
	same(t, "inventory", []string{}, w.inventory())
}

// A chart may render nothing, or a List.
func TestChartMayRenderNothingOrList(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": "{{ if false }}x{{ end }}", "templates/NOTES.txt": "hello"})
	a := deployment("a", release("web", nil))
	w.reconcile(a)
	same(t, "inventory", []string{"a HelmChart web"}, w.inventory())
	w.quiet(1, a)
	w.chart("1.0.1", map[string]string{"templates/a.yaml": "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: two}}]}"})
	w.reconcile(a)
	same(t, "inventory", []string{"a ConfigMap one", "a ConfigMap two", "a HelmChart web"}, w.inventory())
	same(t, "labelled", []string{"one", "two"}, w.there("ConfigMap"))
	w.quiet(2, a)
}

// Hooks and tests, and the definitions of a chart, are left to Helm.
func TestHooksAndDefinitionsAreLeftToHelm(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	group := "zz-" + w.ns + ".example.com"
	crd := definition(group)
	text, err := krm.Encode(krm.YAML, krm.Package{crd})
	if err != nil {
		t.Fatal(err)
	}
	hook := func(name, event string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, annotations: {helm.sh/hook: %s}}}`, name, event)
	}
	w.chart("1.0.0", map[string]string{
		"crds/thing.yaml": string(text), "templates/a.yaml": fmt.Sprintf("{apiVersion: %s/v1, kind: Thing, metadata: {name: one, finalizers: [example.com/wait]}, spec: {a: {{ .Values.mode }}}}", group),
		"templates/pre.yaml": hook("pre", "pre-install"), "templates/post.yaml": hook("post", "post-upgrade"), "templates/test.yaml": hook("try", "test"),
	})
	w.reconcile(deployment("a", release("web", nil)))
	same(t, "inventory", []string{"a HelmChart web", "a Thing one"}, w.inventory())
	same(t, "hooks", []string{"pre"}, w.there("ConfigMap"))
	w.reconcile(deployment("a", release("web", map[string]any{"mode": "x"})))
	same(t, "hooks", []string{"post", "pre"}, w.there("ConfigMap"))
	r := w.reconcile()
	same(t, "said", report.Outcome{Status: "False", Reason: "Removing", Message: fmt.Sprintf("Thing.%s %q: is being removed", group, w.ns+"/one")}, r.Site.Scheduled)
	same(t, "inventory", []string{"a Thing one"}, w.inventory())
	things := w.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(w.ns)
	if _, err := things.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r = w.reconcile()
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "hooks stay", []string{"post", "pre"}, w.there("ConfigMap"))
	w.must("CustomResourceDefinition", "things."+group)
}

// A release of another owner is not changed.
func TestReleaseOfAnotherOwnerIsNotChanged(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap})
	w.reconcile(deployment("a", annotated(release("web", nil), kubernetes.AnnotationPrune, "Never")))
	w.reconcile() // TKO installed it before, and no deployment wants it now
	w.patch("Secret", "sh.helm.release.v1.web.v1", `{"metadata": {"labels": {"`+kubernetes.LabelDeployment+`": null}}}`)
	web := release("web", map[string]any{"mode": "ours"})
	r, err := w.schedule(t.Context(), deployment("b", web))
	same(t, "said", "False Invalid", said(r)["b"])
	if err == nil || !strings.Contains(err.Error(), kubernetes.AnnotationAdopt) {
		t.Error(err)
	}
	w.reconcile()
	same(t, "as it was", "default", w.data("web", "mode"))
	same(t, "revisions", []string{"1 deployed"}, w.revisions())
	w.reconcile(deployment("b", annotated(web, kubernetes.AnnotationAdopt, "true")))
	same(t, "taken over", "ours", w.data("web", "mode"))
}

// The order of steps applies to charts.
func TestChartsFollowStepOrder(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webDeployment})
	a := deployment("a", annotated(configMap("last", "1"), kubernetes.AnnotationOrder, "2"), annotated(release("web", nil), kubernetes.AnnotationOrder, "1"), configMap("first", "1"))
	r := w.reconcile(a)
	same(t, "said", "False Waiting", said(r)["a"])
	same(t, "what is there", []string{"first"}, w.there("ConfigMap"))
	w.rolledOut(progressed)
	r = w.reconcile(a)
	same(t, "said", "True Applied", said(r)["a"])
	same(t, "what is there", []string{"first", "last"}, w.there("ConfigMap"))
}

// Charts can come from repositories and registries. An unchanged one is not requested
// again.
func TestUnchangedRemoteChartIsNotFetchedAgain(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	server := helmtest.Serve(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		server.Add("web", version, helmtest.Archive(t, "web", version, map[string]string{"templates/a.yaml": webMap, "values.yaml": "{mode: default, count: 1}"}))
	}
	from := func(name, ref, repository, version string) krm.Resource {
		r := release(name, nil)
		r["spec"] = map[string]any{"chart": ref, "repository": repository, "version": version}
		return r
	}
	a := deployment("a", from("repository", "web", server.Repository(), "1.0.0"), from("newest", "web", server.Repository(), ""),
		from("registry", server.Registry()+"/web:1.0.0", "", ""), from("url", server.Repository()+"/web@1.0.0.tgz", "", ""))
	r := w.reconcile(a)
	same(t, "said", "4 objects and 4 Helm charts are as they should be", r.Deployments["a"].Scheduled.Message)
	versions := func() map[string]string {
		all := map[string]string{}
		for _, name := range w.there("ConfigMap") {
			all[name] = w.data(name, "chart")
		}
		return all
	}
	same(t, "charts", map[string]string{"repository": "1.0.0", "newest": "1.1.0", "registry": "1.0.0", "url": "1.0.0"}, versions())
	server.Asked()
	w.quiet(2, a)
	same(t, "requests for charts", 0, server.Asked())

	// An unreachable origin affects only charts that are not cached.
	server.Close()
	a.Package[1] = from("repository", "web", server.Repository(), "1.1.0")
	a.Package[3] = from("registry", server.Registry()+"/web:1.0.0", "", "")
	a.Package = append(a.Package, configMap("other", "1"))
	r, err := w.schedule(t.Context(), a)
	same(t, "said", "False Failed", said(r)["a"])
	if err == nil || !strings.Contains(err.Error(), `fetch chart "web" of "`+server.Repository()+`" version "1.1.0"`) {
		t.Error(err)
	}
	same(t, "what is there", []string{"newest", "other", "registry", "repository", "url"}, w.there("ConfigMap"))
}

// A hook that doesn't end fails at the time limit, and does not delay a stop.
func TestHookThatDoesNotEndFailsAtTimeLimit(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{ChartTimeout: time.Second})
	// No controller runs Jobs here.
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": `{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, annotations: {helm.sh/hook: pre-install}},
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`})
	r, err := w.schedule(t.Context(), deployment("a", release("web", nil)))
	same(t, "said", "False Failed", said(r)["a"])
	if err == nil || !strings.Contains(err.Error(), "failed pre-install") {
		t.Error(err)
	}
	same(t, "revisions", []string{}, w.revisions())

	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts, ChartTimeout: time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := w.schedule(ctx, deployment("a", release("web", nil)))
		ended <- err
	}()
	eventually.True(t, "the hook to wait", func() bool { return slices.Equal(w.revisions(), []string{"1 pending-install"}) })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Helm may still record that the installation ended.
	if got := w.revisions(); !slices.Equal(got, []string{"1 pending-install"}) && !slices.Equal(got, []string{"1 failed"}) {
		t.Errorf("after the stop, the revisions are %v", got)
	}
	w.chart("1.0.1", map[string]string{"templates/a.yaml": webMap})
	w.reconcile(deployment("a", release("web", nil)))
	same(t, "revisions", []string{"1 deployed"}, w.revisions())
}

// The example of the documentation works as described.
func TestDocumentedChartWorks(t *testing.T) {
	t.Parallel()
	const root = "../../../"
	text, err := os.ReadFile(root + "docs/kubernetes-sites.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Helm charts\n")
	_, section, _ = strings.Cut(section, "```yaml\n")
	example, _, _ := strings.Cut(section, "```\n")
	pkg, err := krm.Decode(krm.YAML, []byte(example), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, kubernetes.Options{Charts: root + "examples/charts"})
	w.reconcile(deployment("a", pkg...))
	same(t, "configuration", "site: lagos\ninterval: 60s\nlabels: {\"mode\":\"live\"}\nscrape: [\"cu\",\"du\"]\n", w.must("ConfigMap", "metrics").Text("data", "agent.yaml"))
	w.must("Deployment", "metrics")
}

// Templates that exceed the limits of time or memory are ended, and not rendered
// again in each reconciliation.
func TestRenderingIsLimitedInTimeAndMemory(t *testing.T) {
	t.Parallel()
	endless := map[string]struct{ why, template, want string }{
		"a loop":            {"nothing in Go ends it", `{{ range 1000000000000000 }}{{ end }}`, "takes longer than 2s"},
		"a text":            {"templates may come out of templates, too", `{{ tpl "{{ range 1000000000000000 }}{{ end }}" . }}`, "takes longer than 2s"},
		"a very large text": {"it is what ends the whole process", `{{ range 1000 }}{{ $x := repeat 10000000000 "x" }}{{ end }}`, "takes more than 512 MiB of memory"},
		"a very large list": {"the same in small pieces", `{{ $x := until 2000000000 }}`, "takes more than 512 MiB of memory"},
	}
	for name, test := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := 2 * time.Second
			if !strings.Contains(test.want, "longer") {
				limit = timeLimit // filling the memory is slow on a busy machine
			}
			w := newHelmWorld(t, kubernetes.Options{RenderTimeout: limit})
			w.chart("1.0.0", map[string]string{"templates/a.yaml": test.template + webMap})
			chart := release("web", nil)
			other := deployment("b", configMap("other", "1"))
			r, err := w.schedule(t.Context(), deployment("a", chart), other)
			same(t, "said", map[tko.DeploymentID]string{"a": "False Invalid", "b": "True Applied"}, said(r))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "is not tried again within 1h") {
				t.Errorf("%s: %v", test.why, err)
			}
			began := time.Now()
			again, err := w.schedule(t.Context(), deployment("a", chart), other)
			if took := time.Since(began); err == nil || took > time.Second && strings.Contains(test.want, "longer") {
				t.Errorf("the next reconciliation took %s: %v", took, err)
			}
			same(t, "said again", r.Deployments["a"].Scheduled, again.Deployments["a"].Scheduled)
			same(t, "revisions", []string{}, w.revisions())
			w.chart("1.0.1", map[string]string{"templates/a.yaml": webMap})
			r = w.reconcile(deployment("a", chart), other)
			same(t, "another chart", "True Applied", said(r)["a"])
		})
	}
}

// Templates in the rendering process can query the cluster. Helm stores the original
// chart and values.
func TestReleaseStoresOriginalChartThoughRenderedElsewhere(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.create(configMap("theirs", "found"))
	group := "rr-" + w.ns + ".example.com"
	crd, err := krm.Encode(krm.YAML, krm.Package{definition(group)})
	if err != nil {
		t.Fatal(err)
	}
	const subMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {mode: {{ .Values.mode | quote }}, up: {{ .Values.global.up | quote }}}\n"
	w.chart("1.0.0", map[string]string{
		"Chart.yaml":            "{apiVersion: v2, name: web, version: 1.0.0, dependencies: [{name: sub, version: 1.0.0, alias: first}, {name: sub, version: 1.0.0, alias: second}, {name: sub, version: 1.0.0, alias: third, condition: third.enabled}]}",
		"values.yaml":           "{first: {mode: one}, second: {mode: two}, third: {enabled: false}, global: {up: down}, mode: m, count: 1}",
		"charts/sub/Chart.yaml": "{apiVersion: v2, name: sub, version: 1.0.0}", "charts/sub/values.yaml": "{mode: none}", "charts/sub/templates/map.yaml": subMap,
		"crds/thing.yaml":        string(crd),
		"files/a.txt":            "from a file\n{{ not a template }} \"quoted\" `and` \\ more",
		"templates/_helpers.tpl": `{{ define "help" }}helped {{ . }}{{ end }}`,
		"templates/NOTES.txt":    "Notes of {{ .Release.Name }}",
		"templates/map.yaml": webMap + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: asked}
data:
  lookup: {{ (lookup "v1" "ConfigMap" .Release.Namespace "theirs").data.key | quote }}
  none: {{ empty (lookup "v1" "ConfigMap" .Release.Namespace "missing") | quote }}
  list: {{ gt (len (lookup "v1" "ConfigMap" .Release.Namespace "").items) 0 | quote }}
  file: {{ .Files.Get "files/a.txt" | quote }}
  helped: {{ include "help" "x" | quote }}
  revision: "{{ .Release.Revision }} {{ .Release.IsInstall }} {{ .Release.IsUpgrade }}"
  apis: "{{ .Capabilities.APIVersions.Has "apps/v1/Deployment" }} {{ .Capabilities.APIVersions.Has "` + group + `/v1/Thing" }} {{ .Capabilities.APIVersions.Has "nowhere/v1" }}"
  kubernetes: "{{ semverCompare ">=1.20" .Capabilities.KubeVersion.Version }}"
  template: {{ .Template.Name | quote }}
`,
	})
	w.reconcile(deployment("a", release("web", map[string]any{"count": int64(7)})))
	want := map[string]any{
		"lookup": "found", "none": "true", "list": "true", "file": "from a file\n{{ not a template }} \"quoted\" `and` \\ more", "helped": "helped x",
		"revision": "1 true false", "apis": "true true false", "kubernetes": "true", "template": "web/templates/map.yaml",
	}
	same(t, "what was asked", any(want), w.must("ConfigMap", "asked")["data"])
	same(t, "a dependency", any(map[string]any{"mode": "one", "up": "down"}), w.must("ConfigMap", "first")["data"])
	same(t, "the same once more", any(map[string]any{"mode": "two", "up": "down"}), w.must("ConfigMap", "second")["data"])
	same(t, "what is there", []string{"asked", "first", "second", "web"}, w.there("ConfigMap"))

	var stored struct {
		Config map[string]any
		Info   struct{ Notes string }
		Chart  struct{ Templates []struct{ Name, Data string } }
	}
	text := w.must("Secret", "sh.helm.release.v1.web.v1").Text("data", "release")
	outer, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := base64.StdEncoding.DecodeString(string(outer))
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(zip).Decode(&stored); err != nil {
		t.Fatal(err)
	}
	same(t, "values", map[string]any{"count": 7.0}, stored.Config)
	same(t, "notes", "Notes of web", stored.Info.Notes)
	found := false
	for _, f := range stored.Chart.Templates {
		data, _ := base64.StdEncoding.DecodeString(f.Data)
		found = found || f.Name == "templates/map.yaml" && strings.Contains(string(data), "lookup \"v1\"")
	}
	same(t, "the chart is stored as it is", true, found)

	w.reconcile(deployment("a", release("web", map[string]any{"count": int64(8)})))
	same(t, "an upgrade", "2 false true", w.data("asked", "revision"))
}

// A values schema must not read files of this machine, or other hosts.
func TestValuesSchemaReadsNoFilesOrHosts(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		_, _ = rw.Write([]byte("{}"))
	}))
	defer server.Close()
	for name, text := range map[string]string{
		"host": `{"properties": {"mode": {"$ref": "` + server.URL + `/x"}}}`, "metaschema": `{"$schema": "` + server.URL + `/x"}`, "file": `{"allOf": [{"$ref": "file:///etc/passwd"}]}`, "relative": `{"$ref": "etc/passwd"}`,
	} {
		w := newHelmWorld(t, kubernetes.Options{})
		w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "values.schema.json": text})
		same(t, name, "True Applied", said(w.reconcile(deployment("a", release("web", nil))))["a"])
	}
	if len(asked) > 0 {
		t.Errorf("%q was requested", <-asked)
	}
}

// Fields that TKO ignores keep their values in an upgrade.
func TestUpgradeKeepsIgnoredFields(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.set([]any{map[string]any{"kind": "ConfigMap", "name": "web", "pointers": []any{"/data/mode"}}}, "ignore")
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "templates/b.yaml": strings.ReplaceAll(webMap, "{{ .Release.Name }}", "second")})
	w.reconcile(deployment("a", release("web", map[string]any{"mode": "ours"})))
	same(t, "at first", "ours", w.data("web", "mode"))
	for _, name := range []string{"web", "second"} {
		w.patch("ConfigMap", name, `{"data": {"mode": "theirs"}}`)
	}
	a := deployment("a", release("web", map[string]any{"mode": "new", "count": int64(2)}))
	w.reconcile(a)
	same(t, "ignored", []string{"theirs", "2"}, []string{w.data("web", "mode"), w.data("web", "count")})
	same(t, "another object", []string{"new", "2"}, []string{w.data("second", "mode"), w.data("second", "count")})
	same(t, "said", "True Applied", said(w.quiet(2, a))["a"])
	same(t, "labelled all the same", []string{"second", "web"}, w.there("ConfigMap"))
}
