package kubernetes_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

func with(r krm.Resource, value any, path ...string) krm.Resource {
	r = r.Clone()
	r.Set(value, path...)
	return r
}

func job(image string) krm.Resource {
	r := resource("batch/v1", "Job", "j")
	r["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
		"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": image}},
	}}}
	return r
}

func service(ip string) krm.Resource {
	r := resource("v1", "Service", "s")
	r["spec"] = map[string]any{"clusterIP": ip, "selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": int64(80)}}}
	return r
}

// An object with an immutable change is reported, and recreated only with the
// annotation.
func TestImmutableChangeRecreatesAnnotatedObject(t *testing.T) {
	t.Parallel()
	selector := func(app string) krm.Resource {
		return with(with(workload(1), app, "spec", "selector", "matchLabels", "app"), app, "spec", "template", "metadata", "labels", "app")
	}
	ip := func(last int) string { return fmt.Sprintf("10.96.%d.%d", 1+worlds.Add(1)%250, last) } // an IP of its own
	old, other := ip(1), ip(2)
	tests := map[string]struct {
		before, after krm.Resource
		field         string
		value         string // the field's new value
	}{
		"a Job's template":        {job("i:1"), job("i:2"), "spec.template", ""},
		"a Service's cluster IP":  {service(old), service(other), "spec.clusterIPs[0]", other},
		"a Deployment's selector": {selector("web"), selector("other"), "spec.selector", ""},
		"an immutable ConfigMap":  {frozen("f", "1"), frozen("f", "2"), "data", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, kubernetes.Options{})
			kind, object := test.before["kind"].(string), test.before.Name()
			w.reconcile(deployment("a", test.before))
			uid := w.must(kind, object).Text("metadata", "uid")
			r, err := w.schedule(t.Context(), deployment("a", test.after))
			said := r.Deployments["a"].Scheduled
			if !errors.Is(err, tko.ErrInvalid) || said.Reason != "Invalid" || !strings.Contains(said.Message, "can't be updated: "+test.field) ||
				!strings.Contains(said.Message, `annotate it with tko.nephio.org/recreate: "true"`) {
				t.Errorf("%v: %+v", err, said)
			}
			same(t, "the same object", uid, w.must(kind, object).Text("metadata", "uid"))

			w.reconcile(deployment("a", annotated(test.after, kubernetes.AnnotationRecreate, "true")))
			now := w.must(kind, object)
			if now.Text("metadata", "uid") == uid {
				t.Error("the object was not recreated")
			}
			if kind == "Service" && now.Text("spec", "clusterIP") != test.value {
				t.Errorf("the spec is %v", now["spec"])
			}
			same(t, "inventory", []string{"a " + kind + " " + object}, w.inventory())
			w.gate.writes.Store(0)
			w.reconcile(deployment("a", annotated(test.after, kubernetes.AnnotationRecreate, "true")))
			same(t, "writes when nothing changed", int64(0), w.gate.writes.Load())
		})
	}
}

func TestRecreationWaitsForDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	anew := func(value string) tko.Deployment {
		return deployment("a", annotated(frozen("f", value), kubernetes.AnnotationRecreate, "true"))
	}
	w.reconcile(anew("1"))
	w.patch("ConfigMap", "f", `{"metadata": {"finalizers": ["example.com/stays"]}}`)
	for range 2 {
		r := w.reconcile(anew("2"))
		same(t, "said", map[tko.DeploymentID]string{"a": "False Waiting"}, said(r))
		same(t, "of the site", "Waiting", r.Site.Scheduled.Reason)
		same(t, "requeue", kubernetes.Soon, r.Requeue)
		same(t, "what is there", "1", w.must("ConfigMap", "f").Text("data", "key"))
	}
	w.patch("ConfigMap", "f", `{"metadata": {"finalizers": null}}`)
	r := w.reconcile(anew("2"))
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied"}, said(r))
	same(t, "what is there", "2", w.must("ConfigMap", "f").Text("data", "key"))
}

// An object is not recreated if the API server would reject the new one, if another
// owner made it, or if other objects are in it.
func TestInvalidForeignAndSharedObjectsAreNotRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	w.create(frozen("theirs", "1"))
	w.reconcile(deployment("a", definition(group)), deployment("c", annotated(frozen("f", "1"), kubernetes.AnnotationRecreate, "true")))
	wrong := annotated(with(frozen("f", "2"), "no number", "metadata", "labels", "not a label"), kubernetes.AnnotationRecreate, "true")
	theirs := annotated(annotated(frozen("theirs", "2"), kubernetes.AnnotationRecreate, "true"), kubernetes.AnnotationAdopt, "true")
	crd := annotated(definition(group), kubernetes.AnnotationRecreate, "true")
	crd.Set("Cluster", "spec", "scope")
	uid := func(kind, name string) string { return w.must(kind, name).Text("metadata", "uid") }
	before := []string{uid("ConfigMap", "f"), uid("ConfigMap", "theirs"), uid("CustomResourceDefinition", crd.Name())}
	r, err := w.schedule(t.Context(), deployment("a", crd), deployment("b", theirs), deployment("c", wrong))
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(r.Deployments["a"].Scheduled.Message, "that would delete its contents") {
		t.Errorf("%v: %+v", err, r.Deployments["a"].Scheduled)
	}
	same(t, "said", map[tko.DeploymentID]string{"a": "False Invalid", "b": "False Invalid", "c": "False Invalid"}, said(r))
	same(t, "the same objects", before, []string{uid("ConfigMap", "f"), uid("ConfigMap", "theirs"), uid("CustomResourceDefinition", crd.Name())})
}
