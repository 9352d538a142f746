package kubernetes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// They are not adopted even if their content is the same, and so are not removed.
func TestObjectsThatExistedBeforeAreNotAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	labelled := configMap("labelled", "1")
	labelled.Set("of-another-installation", "metadata", "labels", kubernetes.LabelDeployment)
	w.create(configMap("same", "1"))
	w.create(configMap("less", "1"))
	w.create(labelled)
	versions := func() (all []string) {
		for _, name := range []string{"same", "less", "labelled"} {
			all = append(all, w.must("ConfigMap", name).Text("metadata", "resourceVersion"))
		}
		return all
	}
	before := versions()
	more := with(configMap("less", "1"), "more", "data", "more")
	for range 2 {
		r, err := w.schedule(t.Context(), deployment("a", configMap("same", "1"), configMap("new", "1")), deployment("b", more), deployment("c", configMap("labelled", "1")))
		for _, id := range r.Removed {
			t.Errorf("%s was removed", id)
		}
		for id, state := range r.Deployments {
			if v := state.Scheduled; v.Status+" "+v.Reason != "False Invalid" || !strings.Contains(v.Message, "exists already") || !strings.Contains(v.Message, kubernetes.AnnotationAdopt) {
				t.Errorf("deployment %s: %+v", id, v)
			}
		}
		if err == nil {
			t.Error("no error")
		}
	}
	w.must("ConfigMap", "new")
	w.reconcile()
	same(t, "what was there before", before, versions())
	same(t, "inventory", []string{}, w.inventory())

	adopted := annotated(configMap("same", "1"), kubernetes.AnnotationAdopt, "true")
	w.reconcile(deployment("a", adopted))
	w.reconcile(deployment("a", configMap("same", "2")))
	same(t, "once adopted, it is ours", "2", w.must("ConfigMap", "same").Text("data", "key"))
	w.reconcile()
	if w.get("ConfigMap", "same") != nil {
		t.Error("the adopted object was not removed")
	}
}

func TestObjectThatIsBeingRemovedIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.create(with(configMap("x", "1"), []any{"example.com/wait"}, "metadata", "finalizers"))
	w.delete("ConfigMap", "x")
	d := deployment("a", configMap("x", "2"))
	for range 2 {
		same(t, "said", "False Waiting", said(w.reconcile(d))["a"])
		same(t, "what is there", "1", w.must("ConfigMap", "x").Text("data", "key"))
	}
	w.patch("ConfigMap", "x", `{"metadata": {"finalizers": null}}`)
	same(t, "said", "True Applied", said(w.reconcile(d))["a"])
	same(t, "what is there", "2", w.must("ConfigMap", "x").Text("data", "key"))
}

// TKO uses a namespace and a definition that it did not make without changing them.
func TestNamespaceAndDefinitionThatExistedBeforeStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group, name := w.ns+".example.com", w.ns+"-theirs"
	namespace, crd := resource("v1", "Namespace", name), definition(group)
	w.create(namespace)
	w.create(crd)
	theirs := configMap("theirs", "1")
	theirs.Set(name, "metadata", "namespace")
	if _, err := w.client.Resource(kinds["ConfigMap"]).Namespace(name).Create(t.Context(), &unstructured.Unstructured{Object: theirs}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inside := configMap("inside", "1")
	inside.Set(name, "metadata", "namespace")
	thing := resource(group+"/v1", "Thing", "one")
	thing["spec"] = map[string]any{}
	d := deployment("a", namespace, crd, inside, thing)
	versions := func() []string {
		return []string{
			w.must("Namespace", name).Text("metadata", "resourceVersion"), w.must("Namespace", name).Text("metadata", "deletionTimestamp"),
			w.must("CustomResourceDefinition", crd.Name()).Text("metadata", "generation"), w.must("CustomResourceDefinition", crd.Name()).Text("metadata", "deletionTimestamp"),
		}
	}
	before := versions()
	eventually.True(t, "the definition to be served", func() bool {
		r, err := w.schedule(t.Context(), d)
		return err == nil && said(r)["a"] == "True Applied"
	})
	same(t, "what was there before", before, versions())
	w.gate.writes.Store(0)
	w.reconcile(d)
	same(t, "writes when nothing changed", int64(0), w.gate.writes.Load())
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir}) // another meta-scheduler reads that from the inventory
	eventually.True(t, "the rest to go", func() bool { w.reconcile(); return len(w.inventory()) == 0 })
	same(t, "what was there before stays", before, versions())
	if _, err := w.client.Resource(kinds["ConfigMap"]).Namespace(name).Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	// A namespace that differs from the package is not changed without adoption.
	strict := with(namespace, "restricted", "metadata", "labels", "level")
	r, err := w.schedule(t.Context(), deployment("b", strict))
	if v := r.Deployments["b"].Scheduled; err == nil || v.Reason != "Invalid" || !strings.Contains(v.Message, `level is missing, should be "restricted"`) || !strings.Contains(v.Message, kubernetes.AnnotationAdopt) {
		t.Errorf("%v: %+v", err, v)
	}
	same(t, "it is as it was", before, versions())
	w.reconcile(deployment("b", annotated(strict, kubernetes.AnnotationAdopt, "true")))
	same(t, "adopted", "restricted", w.must("Namespace", name).Text("metadata", "labels", "level"))
	if err := w.client.Resource(kinds["ConfigMap"]).Namespace(name).Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") == "" {
		t.Error("the adopted object was not removed")
	}
}

// Foreign objects in a namespace to remove count for the budget, and are named.
func TestBudgetCountsForeignContentsOfNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	name := w.ns + "-ours"
	in := func(r krm.Resource) krm.Resource {
		r.Set(name, "metadata", "namespace")
		return r
	}
	create := func(r krm.Resource) {
		t.Helper()
		kind, _ := r["kind"].(string)
		if _, err := w.client.Resource(kinds[kind]).Namespace(name).Create(t.Context(), &unstructured.Unstructured{Object: in(r)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d := deployment("a", resource("v1", "Namespace", name), in(configMap("ours", "1")), in(secret("ours", "1")))
	w.reconcile(d)
	for i := range 20 {
		create(configMap(fmt.Sprintf("foreign-%02d", i), "1"))
	}
	create(secret("foreign", "1"))
	create(configMap("kube-root-ca.crt", "1")) // made by Kubernetes
	owned := configMap("owned", "1")
	owned.Set([]any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "foreign-00", "uid": "00000000-0000-0000-0000-000000000000"}}, "metadata", "ownerReferences")
	create(owned)

	ask := func() string {
		t.Helper()
		r := w.reconcile()
		same(t, "said", "WaitsForApproval", r.Site.Scheduled.Reason)
		text := r.Site.Scheduled.Message
		_, digest, _ := strings.Cut(text, `spec.prune.approve: "`)
		digest, _, _ = strings.Cut(digest, `"`)
		w.set(digest, "prune", "approve")
		return text
	}
	if text := ask(); !strings.Contains(text, "24 of 24 objects would be removed") || !strings.Contains(text, `21 objects in their namespaces, which TKO did not make, would be deleted too: ConfigMap "`+name+`/foreign-00"`) {
		t.Error(text)
	}
	create(configMap("more", "1")) // after the approval
	if text := ask(); !strings.Contains(text, "25 of 25 objects would be removed") {
		t.Error(text)
	}
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") != "" {
		t.Fatal("the namespace was removed without an approval")
	}
	w.reconcile()
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") == "" {
		t.Error("the namespace was not removed after the approval")
	}
}

// Foreign objects in a namespace to remove need an approval within the budget, too. What is not
// in their way is removed.
func TestForeignContentsOfNamespaceAreHeldWithinTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	names := []string{w.ns + "-ours", w.ns + "-empty"}
	in := func(namespace string, r krm.Resource) krm.Resource {
		r.Set(namespace, "metadata", "namespace")
		return r
	}
	w.reconcile(deployment("a", resource("v1", "Namespace", names[0]), resource("v1", "Namespace", names[1]), in(names[0], configMap("ours", "1")), configMap("elsewhere", "1")))
	at := w.client.Resource(kinds["ConfigMap"]).Namespace(names[0])
	if _, err := at.Create(t.Context(), &unstructured.Unstructured{Object: in(names[0], configMap("foreign", "1"))}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	leaves := func(name string) bool { return w.must("Namespace", name).Text("metadata", "deletionTimestamp") != "" }
	var digest string
	for range 2 {
		r := w.reconcile()
		same(t, "said", []string{"WaitsForApproval", "WaitsForApproval"}, []string{r.Site.Scheduled.Reason, r.Removals.Reason})
		text := r.Removals.Message
		if want := fmt.Sprintf(`Namespace %q would be removed; 1 objects in their namespaces, which TKO did not make, would be deleted too: ConfigMap "%[1]s/foreign". To approve`, names[0]); !strings.HasPrefix(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
		_, digest, _ = strings.Cut(text, `spec.prune.approve: "`)
		digest, _, _ = strings.Cut(digest, `"`)
		same(t, "the namespaces that are removed", []bool{false, true}, []bool{leaves(names[0]), leaves(names[1])})
		same(t, "what is there", []string{}, w.there("ConfigMap"))
		if _, err := at.Get(t.Context(), "foreign", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	w.set(digest, "prune", "approve")
	w.reconcile()
	if !leaves(names[0]) {
		t.Error("the namespace was not removed after the approval")
	}
}

// If the contents of a namespace can't be listed, its removal needs an approval.
func TestNamespaceWithUnknownContentsNeedsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	guard := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			_, _ = rw.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "secrets are not for you", "code": 403}`))
			return
		}
		w.gate.Config.Handler.ServeHTTP(rw, r)
	}))
	defer guard.Close()
	w.kubeconfig("edge.yaml", guard.URL, "")
	name := w.ns + "-ours"
	inside := configMap("inside", "1")
	inside.Set(name, "metadata", "namespace")
	w.reconcile(deployment("a", resource("v1", "Namespace", name), inside))
	r := w.reconcile()
	text := r.Site.Scheduled.Message
	if r.Site.Scheduled.Reason != "WaitsForApproval" || !strings.Contains(text, `TKO can't list the secrets in namespace "`+name+`" (`) {
		t.Errorf("%+v", r.Site.Scheduled)
	}
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") != "" {
		t.Error("the namespace was removed without an approval")
	}
	_, digest, _ := strings.Cut(text, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)
	w.set(digest, "prune", "approve")
	w.reconcile()
	if w.must("Namespace", name).Text("metadata", "deletionTimestamp") == "" {
		t.Error("the namespace was not removed after the approval")
	}
}

// kubectl runs kubectl in the world's namespace.
func (w *world) kubectl(input string, args ...string) {
	w.t.Helper()
	c := kube.Shared(w.t, kube.Options{})
	if out, errs, code := c.Try(w.t, c.Kubeconfig, input, append([]string{"-n", w.ns}, args...)...); code != 0 {
		w.t.Fatalf("kubectl %v: %s%s", args, out, errs)
	}
}

func data(r krm.Resource) map[string]any {
	m, _ := r["data"].(map[string]any)
	return m
}

// After adoption, fields that kubectl set and the package lacks are removed.
func TestFieldsOfKubectlGoWithAdoption(t *testing.T) {
	t.Parallel()
	const manifest = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"theirs": "1"}}, "data": {"key": "1", "second": "1", "extra": "1"}}`
	for name, how := range map[string][]string{
		"client-side":    {"apply", "-f", "-"},
		"server-side":    {"apply", "--server-side", "-f", "-"},
		"kubectl create": {"create", "-f", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kubernetes.Options{})
			w.kubectl(manifest, how...)
			w.kubectl("", "annotate", "configmap", "x", "noted=1")
			if _, err := w.at("ConfigMap").Apply(t.Context(), "x", &unstructured.Unstructured{Object: with(resource("v1", "ConfigMap", "x"), "1", "data", "of-a-controller")}, metav1.ApplyOptions{FieldManager: "controller"}); err != nil {
				t.Fatal(err)
			}
			x := annotated(configMap("x", "2"), kubernetes.AnnotationAdopt, "true")
			w.reconcile(deployment("a", with(x, "2", "data", "second")))
			same(t, "adopted", map[string]any{"key": "2", "second": "2", "of-a-controller": "1"}, data(w.must("ConfigMap", "x")))
			if now := w.must("ConfigMap", "x"); now.Text("metadata", "labels", "theirs") != "" || now.Annotation("noted") != "" || now.Annotation("kubectl.kubernetes.io/last-applied-configuration") != "" {
				t.Errorf("the fields that kubectl set were not removed: %v", now["metadata"])
			}
			w.reconcile(deployment("a", x))
			same(t, "after a field left the package", map[string]any{"key": "2", "of-a-controller": "1"}, data(w.must("ConfigMap", "x")))
			w.gate.writes.Store(0)
			w.reconcile(deployment("a", x))
			same(t, "writes when nothing changed", int64(0), w.gate.writes.Load())
		})
	}
}

// A field that kubectl and the package set is removed when it leaves the package.
func TestFieldsSharedWithKubectlGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	x := with(configMap("x", "1"), "1", "data", "second")
	w.reconcile(deployment("a", x))
	w.kubectl(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"second": "1", "extra": "1"}}`, "apply", "--server-side", "-f", "-")
	w.reconcile(deployment("a", configMap("x", "1")))
	same(t, "what is there", map[string]any{"key": "1", "extra": "1"}, data(w.must("ConfigMap", "x")))
}
