package kubernetes_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// grant gives a service account of the world's namespace all rights on ConfigMaps there, and
// on others.
func (w *world) grant(account string, others ...any) {
	w.t.Helper()
	rbac := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
	}
	role := resource("rbac.authorization.k8s.io/v1", "Role", "tenant")
	role["rules"] = []any{map[string]any{"apiGroups": []any{""}, "resources": append(others, "configmaps"), "verbs": []any{"*"}}}
	binding := resource("rbac.authorization.k8s.io/v1", "RoleBinding", "tenant")
	binding["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
	binding["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": account, "namespace": w.ns}}
	for name, r := range map[string]krm.Resource{"roles": role, "rolebindings": binding} {
		if _, err := w.client.Resource(rbac(name)).Namespace(w.ns).Create(w.t.Context(), &unstructured.Unstructured{Object: r}, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestImpersonatedTenantCannotWriteOutsideItsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.create(resource("v1", "Namespace", w.ns+"-other"))
	w.grant("tenant")
	w.set(map[string]any{"serviceAccount": map[string]any{"name": "tenant"}}, "impersonate")
	outside := configMap("outside", "1")
	outside.Set(w.ns+"-other", "metadata", "namespace")
	all := []tko.Deployment{deployment("in", configMap("inside", "1")), deployment("out", outside), deployment("own", secret("password", "x"))}
	eventually.True(t, "the tenant's rights are in effect", func() bool {
		r, _ := w.schedule(t.Context(), all...)
		return r.Deployments["in"].Scheduled.Status == tko.ConditionTrue
	})
	r, err := w.schedule(t.Context(), all...)
	if err == nil {
		t.Error("the site has no problem")
	}
	for id, what := range map[tko.DeploymentID]string{"out": "configmaps", "own": "secrets"} {
		if s := r.Deployments[id].Scheduled; s.Status != tko.ConditionFalse || !strings.Contains(s.Message, "system:serviceaccount:"+w.ns+":tenant") || !strings.Contains(s.Message, what) {
			t.Errorf("deployment %s: %+v", id, s)
		}
	}
	if got := w.there("Secret"); len(got) > 0 {
		t.Errorf("made %v", got)
	}
	if _, err := w.client.Resource(kinds["ConfigMap"]).Namespace(w.ns+"-other").Get(t.Context(), "outside", metav1.GetOptions{}); err == nil {
		t.Error("the tenant wrote outside of its namespace")
	}
	w.must("ConfigMap", "inside")

	// What was applied without impersonation isn't removed beyond the rights, either.
	w.cluster.Set(nil, "spec", "impersonate")
	w.reconcile(all...)
	w.set(map[string]any{"serviceAccount": map[string]any{"name": "tenant", "namespace": w.ns}}, "impersonate")
	_, _ = w.schedule(t.Context(), all[0])
	if _, err := w.client.Resource(kinds["ConfigMap"]).Namespace(w.ns+"-other").Get(t.Context(), "outside", metav1.GetOptions{}); err != nil {
		t.Errorf("the tenant removed an object outside of its namespace: %v", err)
	}
}

// Charts, and what their values are read from, are the tenant's, too: the condition names
// the service account and what it may not do.
func TestImpersonatedTenantCannotDeployChartsBeyondItsRights(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	w.grant("tenant")
	w.create(secret("theirs", "mode: stolen"))
	w.set(map[string]any{"serviceAccount": map[string]any{"name": "tenant"}}, "impersonate")
	in := deployment("in", configMap("inside", "1"))
	eventually.True(t, "the tenant's rights are in effect", func() bool {
		r, _ := w.schedule(t.Context(), in)
		return r.Deployments["in"].Scheduled.Status == tko.ConditionTrue
	})
	account := "system:serviceaccount:" + w.ns + ":tenant"
	for name, chart := range map[string]krm.Resource{
		"release": release("web", nil), // Helm's records are Secrets
		"values":  reading(nil, map[string]any{"kind": "Secret", "name": "theirs", "valuesKey": "key"}),
	} {
		r, err := w.schedule(t.Context(), in, deployment("chart", chart))
		s := r.Deployments["chart"].Scheduled
		if err == nil || s.Status != tko.ConditionFalse || !strings.Contains(s.Message, account) || !strings.Contains(s.Message, "secrets") || strings.Contains(s.Message, "stolen") {
			t.Errorf("%s: %+v", name, s)
		}
		same(t, name+": the other deployment", "True Applied", said(r)["in"])
	}
	same(t, "what is there", []string{"inside"}, w.there("ConfigMap"))
}

// Without rights on definitions, a tenant upgrades what was installed; and installs nothing
// that needs them.
func TestTenantWithoutRightsOnDefinitionsUpgradesCharts(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	group := "tenant-" + w.ns + ".example.com"
	w.chart("1.0.0", map[string]string{"templates/map.yaml": webMap})
	w.grant("tenant", "secrets")
	w.set(map[string]any{"serviceAccount": map[string]any{"name": "tenant"}}, "impersonate")
	installed := deployment("a", crds("", "x"))
	eventually.True(t, "the tenant's rights are in effect", func() bool {
		r, _ := w.schedule(t.Context(), installed)
		return r.Deployments["a"].Scheduled.Status == tko.ConditionTrue
	})
	w.chart("1.1.0", map[string]string{"templates/map.yaml": webMap, "crds/a.yaml": w.definitions(group, "one", "v1")})
	replacing := deployment("a", crds("CreateReplace", "x"))
	r, _ := w.schedule(t.Context(), replacing)
	if s := r.Deployments["a"].Scheduled; s.Status != tko.ConditionFalse || !strings.Contains(s.Message, "customresourcedefinitions") {
		t.Errorf("CreateReplace: %+v", s)
	}
	same(t, "the upgrade", "True Applied", said(w.reconcile(installed))["a"])
	if w.get("CustomResourceDefinition", "things."+group) != nil {
		t.Error("the tenant created a definition")
	}
	w.reconcile()
	r, _ = w.schedule(t.Context(), installed)
	if s := r.Deployments["a"].Scheduled; s.Status != tko.ConditionFalse || !strings.Contains(s.Message, "customresourcedefinitions") {
		t.Errorf("the installation: %+v", s)
	}
}

func TestImpersonationOfSystemUsersIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	for name, value := range map[string]map[string]any{
		"both":                      {"serviceAccount": map[string]any{"name": "a"}, "user": "b"},
		"neither":                   {},
		"groups of an account":      {"serviceAccount": map[string]any{"name": "a"}, "groups": []any{"g"}},
		"the administrators' group": {"user": "a", "groups": []any{"system:masters"}},
		"a system user":             {"user": "system:admin"},
		"a line break":              {"user": "a\nb"},
		"a path":                    {"serviceAccount": map[string]any{"name": "a:b"}},
	} {
		w.set(value, "impersonate")
		if _, err := w.schedule(t.Context()); err == nil || !strings.Contains(err.Error(), "spec.impersonate") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
