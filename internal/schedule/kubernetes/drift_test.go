package kubernetes_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

func TestDriftIsHandledByPolicy(t *testing.T) {
	t.Parallel()
	edit := func(w *world) {
		w.patch("ConfigMap", "edited", `{"data": {"key": "theirs", "more": "theirs"}}`)
		w.patch("Secret", "edited", `{"data": {"key": "dGhlaXJz"}}`)
		w.patch("Deployment", "web", `{"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}`)
		w.delete("ConfigMap", "gone")
	}
	found := []string{
		`ConfigMap "NS/edited" /data/key is "theirs", should be "ours"`,
		`ConfigMap "NS/gone" `,
		`Deployment.apps "NS/web" /spec/template/spec/containers/0/image is "i:2", should be "i:1"`,
		`Secret "NS/edited" /data/key differs`,
	}
	tests := map[string]struct {
		why    string
		drift  string
		said   string
		undone bool
		tells  bool
	}{
		"correct": {"it is the default", "", "True Applied", true, true},
		"report":  {"people decide", "Report", "False Drifted", false, true},
		"ignore":  {"TKO does not manage it", "Ignore", "True Applied", false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kubernetes.Options{})
			if test.drift != "" {
				w.set(test.drift, "drift")
			}
			// Few objects per deployment, so that the messages name all of them.
			all := []tko.Deployment{
				deployment("a", configMap("edited", "ours"), configMap("gone", "ours")),
				deployment("b", workload(1), secret("edited", "ours")),
			}
			w.reconcile(all...)
			edit(w)
			r := w.reconcile(all...)
			same(t, test.why, map[tko.DeploymentID]string{"a": test.said, "b": test.said}, said(r))
			a, b := r.Deployments["a"].Scheduled, r.Deployments["b"].Scheduled
			text := a.Message + a.Note + b.Message + b.Note
			for _, line := range found {
				line = strings.ReplaceAll(line, "NS", w.ns)
				if strings.Contains(text, line) != test.tells {
					t.Errorf("%s: %q in %q", test.why, line, text)
				}
			}
			if strings.Contains(text, "dGhlaXJz") || strings.Contains(text, "b3Vycw") {
				t.Errorf("the message contains a secret: %s", text)
			}
			undone := w.must("ConfigMap", "edited").Text("data", "key") == "ours" && w.get("ConfigMap", "gone") != nil &&
				w.must("Secret", "edited").Text("data", "key") == "b3Vycw=="
			image, _ := w.must("Deployment", "web").Get("spec", "template", "spec", "containers", "0", "image")
			if undone != test.undone || (image == "i:1") != test.undone {
				t.Errorf("%s: corrected: %t, image %v", test.why, undone, image)
			}
			same(t, "what others added stays", "theirs", w.must("ConfigMap", "edited").Text("data", "more"))

			w.gate.writes.Store(0)
			r = w.reconcile(all...)
			same(t, "again", map[tko.DeploymentID]string{"a": test.said, "b": test.said}, said(r))
			if n := w.gate.writes.Load(); test.undone && n > 0 {
				t.Errorf("%d writes after the correction", n)
			}

			// A change of the deployment is applied with each policy.
			all[0] = deployment("a", configMap("edited", "new"), configMap("gone", "new"))
			w.reconcile(all...)
			same(t, "a change", "new", w.must("ConfigMap", "edited").Text("data", "key"))
			same(t, "a change", "new", w.must("ConfigMap", "gone").Text("data", "key"))
		})
	}
}

func TestFieldsOfChangesWithOwnership(t *testing.T) {
	t.Parallel()
	object := func(manager, operation, fields, at string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": []any{
			map[string]any{"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsV1": map[string]any{"f:x": map[string]any{}}},
			map[string]any{"manager": manager, "operation": operation, "apiVersion": "v1", "time": at, "fieldsV1": map[string]any{fields: map[string]any{}}},
		}}}}
	}
	const at, later = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
	ours := kubernetes.FieldsOf(object("tko", "Apply", "f:a", at))
	same(t, "the same", ours, kubernetes.FieldsOf(object("tko", "Apply", "f:a", at)))
	for why, o := range map[string]*unstructured.Unstructured{
		"other fields": object("tko", "Apply", "f:b", at),
		"a request of ours that we don't know came": object("tko", "Apply", "f:a", later),
		"another manager's":                         object("kubectl", "Apply", "f:a", at),
		"not applied":                               object("tko", "Update", "f:a", at),
	} {
		if kubernetes.FieldsOf(o) == ours {
			t.Errorf("%s: the hash does not change", why)
		}
	}
}

// After a foreign change and its reversal, TKO owns the field again, so that the next
// change is detected.
func TestRevertedChangeRestoresOwnership(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", configMap("x", "ours"))
	w.reconcile(d)
	w.patch("ConfigMap", "x", `{"data": {"key": "theirs"}}`)
	w.patch("ConfigMap", "x", `{"data": {"key": "ours"}}`)
	r := w.reconcile(d)
	same(t, "nothing was undone", "", r.Deployments["a"].Scheduled.Note)
	w.patch("ConfigMap", "x", `{"data": {"key": "theirs"}}`)
	r = w.reconcile(d)
	if !strings.Contains(r.Deployments["a"].Scheduled.Note, "/data/key") {
		t.Errorf("the change is not reported: %q", r.Deployments["a"].Scheduled.Note)
	}
	same(t, "undone", "ours", w.must("ConfigMap", "x").Text("data", "key"))
}

// Lists don't contain an object without TKO's label.
func TestObjectWithoutLabelIsStillManaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", configMap("x", "1"), configMap("y", "1"))
	w.reconcile(d)
	uid := w.must("ConfigMap", "x").Text("metadata", "uid")
	off := `{"metadata": {"labels": {"tko.nephio.org/deployment": null}}}`
	w.patch("ConfigMap", "x", off)
	w.reconcile(d)
	same(t, "the label is back", []string{"x", "y"}, w.there("ConfigMap"))
	same(t, "the same object", uid, w.must("ConfigMap", "x").Text("metadata", "uid"))
	w.patch("ConfigMap", "x", off)
	w.reconcile()
	if w.get("ConfigMap", "x") != nil {
		t.Error("the object without a label was not removed")
	}
}

func TestIgnoredFieldsKeepValuesOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set([]any{
		map[string]any{"kind": "Deployment", "group": "apps", "pointers": []any{"/spec/replicas"}},
		map[string]any{"kind": "ConfigMap", "name": "x", "pointers": []any{"/metadata/annotations/a~1b", "/data/none/at/all"}},
	}, "ignore")
	x, y := annotated(configMap("x", "1"), "a/b", "ours"), annotated(configMap("y", "1"), "a/b", "ours")
	d := deployment("a", workload(3), x, y)
	replicas := func() any {
		v, _ := w.must("Deployment", "web").Get("spec", "replicas")
		return v
	}
	w.reconcile(d)
	same(t, "at first", any(int64(3)), replicas())
	w.patch("Deployment", "web", `{"spec": {"replicas": 7}}`)
	w.patch("ConfigMap", "x", `{"metadata": {"annotations": {"a/b": "theirs"}}, "data": {"key": "theirs"}}`)
	w.patch("ConfigMap", "y", `{"metadata": {"annotations": {"a/b": "theirs"}}}`)
	for range 2 {
		w.reconcile(d)
		same(t, "ignored", any(int64(7)), replicas())
		same(t, "ignored", "theirs", w.must("ConfigMap", "x").Annotation("a/b"))
		same(t, "not ignored", "1", w.must("ConfigMap", "x").Text("data", "key"))
		same(t, "of another object", "ours", w.must("ConfigMap", "y").Annotation("a/b"))
	}
	w.patch("ConfigMap", "x", `{"metadata": {"annotations": {"a/b": null}}}`)
	d = deployment("a", workload(3), annotated(x, "a", "b"), y)
	w.reconcile(d)
	same(t, "changed", "b", w.must("ConfigMap", "x").Annotation("a"))
	if _, there := w.must("ConfigMap", "x").Get("metadata", "annotations", "a/b"); there {
		t.Error("a field that another client removed was restored")
	}
}
