package kubernetes_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const ready = `{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}}`

// webhook returns a webhook configuration that checks Services of the world's
// namespace, and rejects them if Service s does not respond.
func (w *world) webhook() krm.Resource {
	r := resource("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", w.ns)
	r["webhooks"] = []any{map[string]any{
		"name": "services.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "timeoutSeconds": int64(1),
		"clientConfig":      map[string]any{"service": map[string]any{"namespace": w.ns, "name": "s"}},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.ns}},
		"rules":             []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"services"}, "operations": []any{"CREATE", "UPDATE", "DELETE"}}},
	}}
	w.t.Cleanup(func() {
		_ = w.client.Resource(webhooks).Delete(w.t.Context(), w.ns, metav1.DeleteOptions{})
	})
	return r
}

var webhooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}

func headless() krm.Resource { return service("None") }

// wrote returns the last parts of the paths that were written with a method, without
// inventories.
func (g *gate) wrote(method string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for _, p := range g.paths {
		if m, path, _ := strings.Cut(p, " "); m == method && !strings.Contains(path, "/configmaps/tko-") {
			parts := strings.Split(path, "/")
			all = append(all, parts[len(parts)-2])
		}
	}
	return all
}

func (g *gate) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paths = nil
}

// A fail-closed webhook is applied after its own backends: otherwise their Service
// would be rejected for ever.
func TestFailClosedWebhookForItsOwnServicesIsAppliedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	d := deployment("a", w.webhook(), headless(), workload(1), configMap("x", "1"))
	for range 2 {
		r := w.reconcile(d)
		same(t, "said", "False Waiting", said(r)["a"])
		same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
		same(t, "requeue", kubernetes.Soon, r.Requeue)
		if text := r.Deployments["a"].Scheduled.Message; !strings.Contains(text, `waits for Deployment.apps "`+w.ns+`/web", which serves it`) {
			t.Error(text)
		}
		w.must("Service", "s")
		if _, err := w.client.Resource(webhooks).Get(t.Context(), w.ns, metav1.GetOptions{}); err == nil {
			t.Fatal("the webhook was applied before its backend")
		}
	}
	// Objects that left the package stay until all new ones exist.
	r := w.reconcile(deployment("a", w.webhook(), headless(), workload(1)))
	same(t, "said", "False Waiting", said(r)["a"])
	w.must("ConfigMap", "x")

	w.patch("Deployment", "web", ready, "status")
	r = w.reconcile(d)
	same(t, "said", "True Applied", said(r)["a"])
	if _, err := w.client.Resource(webhooks).Get(t.Context(), w.ns, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gate.writes.Store(0)
	w.reconcile(d)
	same(t, "writes when nothing changed", int64(0), w.gate.writes.Load())

	// The webhook is removed before its backend, whose removal it would block.
	w.gate.forget()
	r = w.reconcile()
	same(t, "removed", []tko.DeploymentID{"a"}, r.Removed)
	same(t, "in this order", []string{"validatingwebhookconfigurations", "deployments", "services", "configmaps"}, w.gate.wrote("DELETE"))
}

// A webhook waits for backends in other deployments. It doesn't wait for other
// Services of the cluster, nor for objects that its own deployment orders after it.
func TestWebhookWaitsOnlyForWhatServesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	other := with(workload(1), "unrelated", "metadata", "name")
	for _, path := range [][]string{{"spec", "selector", "matchLabels", "app"}, {"spec", "template", "metadata", "labels", "app"}} {
		other.Set("unrelated", path...)
	}
	is := func(deployments ...tko.Deployment) map[tko.DeploymentID]string {
		t.Helper()
		r, err := w.schedule(t.Context(), deployments...)
		if err != nil {
			t.Error(err)
		}
		return said(r)
	}
	same(t, "others' Services", map[tko.DeploymentID]string{"a": "True Applied"}, is(deployment("a", w.webhook(), other)))
	is()
	last := annotated(workload(1), kubernetes.AnnotationOrder, "1")
	same(t, "what is ordered after it", map[tko.DeploymentID]string{"a": "True Applied"}, is(deployment("a", headless(), annotated(w.webhook(), kubernetes.AnnotationOrder, "0"), last)))
	is()
	same(t, "another deployment's workload", map[tko.DeploymentID]string{"a": "False Waiting", "b": "True Applied"}, is(deployment("a", w.webhook()), deployment("b", headless(), workload(1))))
	w.patch("Deployment", "web", ready, "status")
	same(t, "that is ready", map[tko.DeploymentID]string{"a": "True Applied", "b": "True Applied"}, is(deployment("a", w.webhook()), deployment("b", headless(), workload(1))))
}

func TestAPIServiceWaitsForItsWorkload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	r := resource("apiregistration.k8s.io/v1", "APIService", "v1."+w.ns+".example.com")
	r["spec"] = map[string]any{
		"group": w.ns + ".example.com", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15), "insecureSkipTLSVerify": true,
		"service": map[string]any{"namespace": w.ns, "name": "s"},
	}
	same(t, "said", "False Waiting", said(w.reconcile(deployment("a", r, headless(), workload(1))))["a"])
	same(t, "what is applied", []string{"services", "deployments"}, w.gate.wrote("PATCH"))
}

// A custom resource must not be created before the webhook for its kind that is
// applied with it.
func TestCustomResourceWaitsForItsWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	w.create(definition(group))
	thing := resource(group+"/v1", "Thing", "one")
	thing["spec"] = map[string]any{}
	hook := func(groups string, selector map[string]any) krm.Resource {
		r := w.webhook()
		one := r["webhooks"].([]any)[0].(map[string]any)
		one["rules"] = []any{map[string]any{"apiGroups": []any{groups}, "apiVersions": []any{"*"}, "resources": []any{"things"}, "operations": []any{"CREATE"}}}
		one["namespaceSelector"] = selector
		return r
	}
	own := map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": w.ns}}
	is := func(name string, hook krm.Resource) (message string) {
		t.Helper()
		one := with(thing, name, "metadata", "name")
		eventually.True(t, "the kind to be served", func() bool {
			r, err := w.schedule(t.Context(), deployment("a", one, hook, headless(), workload(1)))
			message = r.Deployments["a"].Scheduled.Message
			return err == nil
		})
		return message
	}
	there := func(name string) bool {
		_, err := w.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil
	}
	if text := is("one", hook(group, nil)); there("one") || !strings.Contains(text, `Thing.`+group+` "`+w.ns+`/one" waits for ValidatingWebhookConfiguration`) {
		t.Errorf("the resource exists, or the wait is not reported: %s", text)
	}
	is("of-some", hook(group, own))
	is("of-all", hook("*", nil))
	same(t, "those that a workload may need", []bool{true, true}, []bool{there("of-some"), there("of-all")})
	w.patch("Deployment", "web", ready, "status")
	r, err := w.schedule(t.Context(), deployment("a", thing, hook(group, nil), headless(), workload(1)))
	if err == nil || !strings.Contains(r.Deployments["a"].Scheduled.Message, "failed calling webhook") || there("one") { // because no pods run here
		t.Errorf("the applied webhook is not called: %v", err)
	}
}

func TestKindsAreAppliedInTheOrderOfHelm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	w.create(definition(group))
	spec := func(apiVersion, kind string, spec map[string]any) krm.Resource {
		r := resource(apiVersion, kind, "x")
		r["spec"] = spec
		return r
	}
	binding := resource("rbac.authorization.k8s.io/v1", "RoleBinding", "x")
	binding["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
	role := resource("rbac.authorization.k8s.io/v1", "Role", "x")
	role["rules"] = []any{}
	ordered := krm.Package{
		spec("networking.k8s.io/v1", "NetworkPolicy", map[string]any{"podSelector": map[string]any{}}),
		spec("policy/v1", "PodDisruptionBudget", map[string]any{"minAvailable": int64(1)}),
		resource("v1", "ServiceAccount", "x"), secret("x", "1"), configMap("x", "1"), role, binding, headless(), workload(1), job("i"),
		spec("networking.k8s.io/v1", "Ingress", map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": "s", "port": map[string]any{"number": int64(80)}}}}),
		spec(group+"/v1", "Thing", map[string]any{}),
	}
	want := []string{
		"networkpolicies", "poddisruptionbudgets", "serviceaccounts", "secrets", "configmaps", "roles", "rolebindings", "services", "deployments", "jobs", "ingresses", "things",
	}
	reversed := slices.Clone(ordered)
	slices.Reverse(reversed)
	eventually.True(t, "the kind to be served", func() bool {
		_, err := w.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	w.reconcile(deployment("a", reversed...))
	same(t, "applied", want, w.gate.wrote("PATCH"))
	w.gate.forget()
	eventually.True(t, "everything to go", func() bool { return len(w.reconcile().Removed) == 1 })
	slices.Reverse(want)
	same(t, "removed", want, w.gate.wrote("DELETE"))
}

// An object that can't be deleted delays the rest of its deployment, and the
// deployment that has its definition, because that may run its finalizer. Other
// deployments are not delayed.
func TestStuckObjectKeepsOnlyWhatMayFinalizeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	group := w.ns + ".example.com"
	things := w.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(w.ns)
	thing := resource(group+"/v1", "Thing", "one")
	thing["spec"] = map[string]any{}
	thing.Set([]any{"example.com/wait"}, "metadata", "finalizers")
	a, b, c := deployment("a", thing, configMap("of-a", "1")), deployment("b", definition(group), configMap("operator", "1")), deployment("c", configMap("of-c", "1"), headless())
	w.reconcile(a, b, c)
	for range 2 {
		r := w.reconcile()
		same(t, "what stays", []string{"of-a", "operator"}, w.there("ConfigMap"))
		same(t, "said", "Removing", r.Site.Scheduled.Reason)
	}
	same(t, "what is recorded", []string{"a ConfigMap of-a", "a Thing one", "b ConfigMap operator", "b CustomResourceDefinition things." + group}, w.inventory())
	if _, err := things.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "everything to go", func() bool { w.reconcile(); return len(w.inventory()) == 0 })
	same(t, "what is there", []string{}, w.there("ConfigMap"))
}

func TestDeploymentWaitsForThoseItDependsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set([]any{map[string]any{"kind": "ConfigMap", "current": "object.data.key == 'ready'"}}, "health")
	of := func(id tko.DeploymentID, template, dependsOn, value string) tko.Deployment {
		d := deployment(id, configMap("of-"+string(id), value))
		d.Template = tko.TemplateID(template)
		if dependsOn != "" {
			d.Metadata = map[string]string{kubernetes.MetadataDependsOn: dependsOn}
		}
		return d
	}
	waits := func(when string, r report.Report, text string) {
		t.Helper()
		if got := r.Deployments["a"].Scheduled; got.Reason != trigger.ReasonWaiting || !strings.Contains(got.Message, text) || r.Requeue > time.Minute {
			t.Errorf("%s: %+v, again in %s", when, got, r.Requeue)
		}
		if w.get("ConfigMap", "of-a") != nil {
			t.Errorf("%s: it was applied", when)
		}
	}
	a := of("a", "nf/smf:v1", "nf/operator:*, nf/db:**", "ready")
	waits("nothing to depend on", w.reconcile(a, of("c", "nf/db:v1", "", "ready")), `matches "nf/operator:*": none`)
	waits("it is being created", w.reconcile(a, of("b", "nf/operator:v1", "", "starting"), of("c", "nf/db:v1", "", "ready")), `deployment "b"`)
	waits("it is not healthy", w.reconcile(a, of("b", "nf/operator:v1", "", "starting"), of("c", "nf/db:v1", "", "ready")), "is not healthy yet")
	b, c := of("b", "nf/operator:v1", "", "ready"), of("c", "nf/db:v1", "", "ready")
	w.reconcile(a, b, c) // changes it
	if r := w.reconcile(a, b, c); r.Deployments["a"].Scheduled.Reason != trigger.ReasonApplied || w.get("ConfigMap", "of-a") == nil {
		t.Errorf("all are healthy: %+v", r.Deployments["a"])
	}
	r := w.reconcile(a, of("b", "nf/operator:v1", "", "broken"), c)
	if got := r.Deployments["a"].Scheduled; got.Reason != trigger.ReasonWaiting || w.get("ConfigMap", "of-a") == nil {
		t.Errorf("what it depends on is broken later: it waits, and stays: %+v", got)
	}
	for when, wrong := range map[string][]tko.Deployment{
		"a circle":   {a, of("b", "nf/operator:v1", "nf/smf:v1", "ready"), c},
		"no pattern": {of("a", "nf/smf:v1", "nf/operator:v1,,", "ready"), b, c},
	} {
		r, err := w.schedule(t.Context(), wrong...)
		if got := r.Deployments["a"].Scheduled; err == nil || got.Reason != trigger.ReasonInvalid || !strings.Contains(got.Message, "depends-on") || w.get("ConfigMap", "of-a") == nil {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
}
