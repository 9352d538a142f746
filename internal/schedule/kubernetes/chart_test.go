package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const testPod = `apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: try, image: i}]}
`

// tested returns the HelmChart web with tests.
func tested(mode, timeout string) krm.Resource {
	r := release("web", map[string]any{"mode": mode})
	test := map[string]any{"enable": true}
	if timeout != "" {
		test["timeout"] = timeout
	}
	r.Set(test, "spec", "test")
	return r
}

// ends sets the status of the test's pod, as a kubelet would, while the site is
// reconciled. was is the pod of an earlier test.
func (w *helmWorld) ends(was, status string, deployments ...tko.Deployment) report.Report {
	w.t.Helper()
	done := make(chan report.Report, 1)
	go func() {
		r, err := w.schedule(w.t.Context(), deployments...)
		if err != nil {
			w.t.Error(err)
		}
		done <- r
	}()
	eventually.True(w.t, "the pod of the test", func() bool {
		pod := w.get("Pod", "web-test")
		return pod != nil && pod.Text("metadata", "uid") != was
	})
	w.patch("Pod", "web-test", `{"status": `+status+`}`, "status")
	return <-done
}

func (w *helmWorld) pod() string { return w.must("Pod", "web-test").Text("metadata", "uid") }

const (
	passed     = `{"phase": "Succeeded"}`
	failedTest = `{"phase": "Failed", "containerStatuses": [{"name": "try", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 3, "message": "no route to %s\n"}}}]}`
)

// Tests run once after each installation and upgrade, when the release is healthy. The
// health of the deployment is their result, and later steps wait for it.
func TestChartsAreTestedAfterEachUpgrade(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap, "templates/test.yaml": testPod})
	w.reconcile(deployment("a", release("web", map[string]any{"mode": "one"})))
	if w.get("Pod", "web-test") != nil {
		t.Fatal("tests run though none are asked for")
	}
	later := annotated(configMap("later", "1"), kubernetes.AnnotationOrder, "1")

	a := deployment("a", tested("one", ""), later)
	r := w.ends("", passed, a)
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason) // the next step is not applied yet
	same(t, "no upgrade for that", []string{"1 deployed"}, w.revisions())
	r = w.reconcile(a)
	same(t, "said", "True Healthy", r.Deployments["a"].Healthy.Status+" "+r.Deployments["a"].Healthy.Reason)
	same(t, "the next step", []string{"later", "web"}, w.there("ConfigMap"))
	first := w.pod()
	w.quiet(2, a)
	same(t, "the same pod", first, w.pod())

	// A release that another client uninstalled is installed, and tested, again.
	w.delete("ConfigMap", "web")
	w.delete("Secret", "sh.helm.release.v1.web.v1")
	w.ends(first, passed, a)
	same(t, "installed again", []string{"1 deployed"}, w.revisions())
	first = w.pod()
	w.reconcile(a)

	a = deployment("a", tested("two", ""), later)
	r = w.ends(first, fmt.Sprintf(failedTest, strings.Repeat("x", 2000)), a)
	s := r.Deployments["a"].Healthy
	if s.Status != tko.ConditionFalse || s.Reason != "Unhealthy" || !strings.Contains(s.Message, `failed its test: container "try" of pod "web-test" ended with exit code 3: no route to xxx`) || len(s.Message) > 1000 {
		t.Errorf("the condition is %+v", s)
	}
	same(t, "the upgrade stays", "two", w.data("web", "mode"))
	same(t, "said", "False Waiting", said(r)["a"]) // the next step would come now
	second := w.pod()
	r, err := w.schedule(t.Context(), a)
	same(t, "the result stays", s, r.Deployments["a"].Healthy)
	same(t, "the same pod", second, w.pod())
	if err != nil {
		t.Error(err)
	}

	a.Package[1] = annotated(a.Package[1], chart.AnnotationRetry, "1")
	w.ends(second, passed, a)
	r = w.reconcile(a)
	same(t, "tested again", "True", r.Deployments["a"].Healthy.Status)
	w.chart("1.0.1", map[string]string{"templates/map.yaml": webMap})
	w.reconcile(a)
	r = w.reconcile(a)
	same(t, "a chart without tests", "True", r.Deployments["a"].Healthy.Status)
}

// Tests wait for healthy objects. They end at their limit, and when the meta-scheduler
// stops; the next one runs them again.
func TestChartTestsEndAtTheirLimit(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webDeployment, "templates/test.yaml": testPod})
	a := deployment("a", tested("one", "1s"))
	r := w.reconcile(a)
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
	if w.get("Pod", "web-test") != nil {
		t.Error("tests run before the objects are healthy")
	}
	w.rolledOut(progressed)
	r = w.reconcile(a)
	if s := r.Deployments["a"].Healthy; s.Reason != "Unhealthy" || !strings.Contains(s.Message, "did not end within 1s") {
		t.Errorf("the condition is %+v", s)
	}

	// The limit of tests is at most that of hooks.
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts, ChartTimeout: 2 * time.Second})
	a = deployment("a", tested("two", "100h"))
	_, _ = w.schedule(t.Context(), a)
	w.rolledOut(progressed)
	r = w.reconcile(a)
	if s := r.Deployments["a"].Healthy; s.Reason != "Unhealthy" || !strings.Contains(s.Message, "did not end within 2s") {
		t.Errorf("the condition is %+v", s)
	}

	w.gate.writes.Store(0)
	a = deployment("a", tested("three", ""))
	_, _ = w.schedule(t.Context(), a)
	w.rolledOut(progressed)
	was := w.pod()
	w.gate.writes.Store(0)
	w.gate.last.Store(3) // the pod is made, and its result is not recorded
	_, err := w.schedule(t.Context(), a)
	if err == nil {
		t.Fatal("the meta-scheduler did not stop")
	}
	w.gate.last.Store(-1)
	w.gate.dead.Store(false)
	now := was
	if pod := w.get("Pod", "web-test"); pod != nil {
		now = pod.Text("metadata", "uid")
	}
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts}) // two seconds are short on a busy machine
	r = w.ends(now, passed, a)
	same(t, "health", "True", r.Deployments["a"].Healthy.Status)
}

// crds returns the HelmChart web with a policy for its definitions.
func crds(policy, mode string) krm.Resource {
	r := release("web", map[string]any{"mode": mode})
	if policy != "" {
		r.Set(policy, "spec", "crds")
	}
	return r
}

// definitions returns a file with a definition of the given versions, and a description.
func (w *helmWorld) definitions(group, description string, versions ...string) string {
	w.t.Helper()
	crd := definition(group)
	list := []any{}
	for i, name := range versions {
		list = append(list, map[string]any{"name": name, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "description": description, "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}}})
	}
	crd.Set(list, "spec", "versions")
	text, err := krm.Encode(krm.YAML, krm.Package{crd})
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *helmWorld) description(group string) (text string, versions int) {
	w.t.Helper()
	list, _ := w.must("CustomResourceDefinition", "things."+group).Get("spec", "versions")
	all, _ := list.([]any)
	first, _ := all[0].(map[string]any)
	return krm.Resource(first).Text("schema", "openAPIV3Schema", "description"), len(all)
}

func TestDefinitionsOfChartsFollowTheirPolicy(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	old, late := "old-"+w.ns+".example.com", "late-"+w.ns+".example.com"
	publish := func(version, thing string, files map[string]string) {
		files["templates/a.yaml"] = webMap + "---\n" + thing
		w.chart(version, files)
	}
	thing := func(group, version string) string {
		return fmt.Sprintf("{apiVersion: %s/%s, kind: Thing, metadata: {name: one}, spec: {a: b}}\n", group, version)
	}
	// With Skip, none is created.
	publish("0.9.0", "", map[string]string{"crds/old.yaml": w.definitions(old, "one", "v1")})
	w.reconcile(deployment("a", crds("Skip", "x")))
	if w.get("CustomResourceDefinition", "things."+old) != nil {
		t.Error("Skip creates definitions")
	}
	w.reconcile()

	publish("1.0.0", thing(old, "v1"), map[string]string{"crds/old.yaml": w.definitions(old, "one", "v1")})
	a := deployment("a", crds("", "x"))
	w.reconcile(a)
	created := w.must("CustomResourceDefinition", "things."+old).Text("metadata", "uid")

	// By default, an upgrade creates missing definitions, and changes none.
	publish("1.1.0", thing(old, "v1")+"---\n"+strings.ReplaceAll(thing(late, "v1"), "one", "two"), map[string]string{"crds/old.yaml": w.definitions(old, "two", "v1"), "crds/late.yaml": w.definitions(late, "two", "v1")})
	w.reconcile(a)
	if text, _ := w.description(old); text != "one" {
		t.Errorf("Create changes a definition: %q", text)
	}
	w.must("CustomResourceDefinition", "things."+late)

	// CreateReplace upgrades them before objects of a new version are applied, and waits
	// until the new version is served.
	publish("1.2.0", thing(old, "v2"), map[string]string{"crds/old.yaml": w.definitions(old, "three", "v1", "v2")})
	a = deployment("a", crds("CreateReplace", "x"))
	r := w.reconcile(a)
	same(t, "said", "True Applied", said(r)["a"])
	text, versions := w.description(old)
	same(t, "upgraded", "three 2", fmt.Sprint(text, " ", versions))
	same(t, "the same definition", created, w.must("CustomResourceDefinition", "things."+old).Text("metadata", "uid"))
	w.reconcile(a)
	same(t, "the release", "True Applied", said(w.reconcile(a))["a"])

	// Definitions are never removed: neither those that left the chart, nor with the
	// release.
	publish("1.3.0", "", map[string]string{})
	w.reconcile(a)
	w.reconcile()
	w.must("CustomResourceDefinition", "things."+old)
	w.must("CustomResourceDefinition", "things."+late)
}

// A definition that a deployment applies, an object that is none, and an invalid one are
// refused before the release changes.
func TestDefinitionsThatCannotBeReplacedAreNamed(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	group := "own-" + w.ns + ".example.com"
	w.chart("1.0.0", map[string]string{"templates/a.yaml": webMap, "crds/a.yaml": w.definitions(group, "chart", "v1")})
	own := deployment("b", definition(group))
	w.reconcile(own, deployment("a", crds("", "one")))
	same(t, "the release", "one", w.data("web", "mode"))
	for name, test := range map[string]struct{ crds, want string }{
		"of a deployment": {w.definitions(group, "chart", "v1"), `things.` + group + `": deployment "b" applies it: remove it from there`},
		"none":            {"{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}", `has a ConfigMap "c", and not only definitions`},
		"invalid":         {w.definitions("new-"+group, "chart", "Not-A-Version"), "Not-A-Version"},
	} {
		w.chart("1.0.1", map[string]string{"templates/a.yaml": webMap, "crds/a.yaml": test.crds})
		r, err := w.schedule(t.Context(), own, deployment("a", crds("CreateReplace", "two")))
		if err == nil || !strings.Contains(r.Deployments["a"].Scheduled.Message, test.want) || said(r)["a"] != "False Invalid" {
			t.Errorf("%s: %v", name, r.Deployments["a"].Scheduled)
		}
		same(t, name+": the release stays", "one", w.data("web", "mode"))
	}
	if text, _ := w.description(group); text != "" {
		t.Errorf("the definition of the deployment changed: %q", text)
	}
	r, err := w.schedule(t.Context(), own, deployment("a", crds("Replace", "two")))
	if err == nil || !strings.Contains(r.Deployments["a"].Scheduled.Message, `"Replace" is none of Skip, Create and CreateReplace`) {
		t.Errorf("%v", r.Deployments["a"].Scheduled)
	}
	_, _ = w.at("CustomResourceDefinition").Patch(t.Context(), "things."+group, types.MergePatchType, []byte(`{"metadata": {"labels": null}}`), metav1.PatchOptions{})
}
