package kubernetes_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// rbac applies an object of RBAC under another name, bound to a user.
func (w *world) rbac(namespace string, role krm.Resource, user string) {
	w.t.Helper()
	resource := func(kind string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: strings.ToLower(kind) + "s"}
	}
	kind, _ := role["kind"].(string)
	name := w.ns + "-" + role.Text("metadata", "name")
	role = role.Clone()
	role["metadata"] = map[string]any{"name": name}
	binding := krm.Resource{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind + "Binding", "metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}
	for _, r := range []krm.Resource{role, binding} {
		kind, _ := r["kind"].(string)
		at := w.client.Resource(resource(kind)).Namespace(namespace)
		if _, err := at.Create(w.t.Context(), &unstructured.Unstructured{Object: r}, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// shippedRole returns a role from the manifests of a component.
func shippedRole(t *testing.T, file, kind, name string) krm.Resource {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy/kubernetes/components", file))
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var r krm.Resource
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			t.Fatal(err)
		}
		if r["kind"] == kind && r.Text("metadata", "name") == name {
			return r
		}
	}
	t.Fatalf("%s has no %s %q", file, kind, name)
	return nil
}

// inNamespace returns the path of a kubeconfig of a user whose context has a namespace.
func inNamespace(t *testing.T, user, namespace string) string {
	t.Helper()
	path := kube.Shared(t, kube.Options{}).UserKubeconfig(t, user)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config krm.Resource
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	contexts, _ := config["contexts"].([]any)
	for _, c := range contexts {
		context, _ := c.(map[string]any)
		krm.Resource(context).Set(namespace, "context", "namespace")
	}
	if text, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keep stores a kubeconfig for a server in a Secret of the world's namespace.
func (w *world) keep(name, key, server string, labels map[string]any) {
	w.t.Helper()
	w.kubeconfig("kept.yaml", server, "")
	text, err := os.ReadFile(filepath.Join(w.dir, "kept.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.dir, "kept.yaml")); err != nil {
		w.t.Fatal(err)
	}
	r := resource("v1", "Secret", name)
	r.Set(labels, "metadata", "labels")
	r["data"] = map[string]any{key: base64.StdEncoding.EncodeToString(text)}
	if w.get("Secret", name) != nil {
		w.delete("Secret", name)
	}
	w.create(r)
}

// Kubeconfigs come from Secrets with the operator's labels, with no more than the rights
// of the shipped role. They are read while TKO runs.
func TestKubeconfigsComeFromLabelledSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	user := "scheduler-" + w.ns
	w.rbac(w.ns, shippedRole(t, "kubeconfigs/kubeconfigs.yaml", "Role", "tko-kubeconfigs"), user)
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Labelled: "cluster.x-k8s.io/cluster-name", LabelledIn: inNamespace(t, user, w.ns)})
	labels := map[string]any{"cluster.x-k8s.io/cluster-name": "edge"}
	file := func(name string) { w.set(map[string]any{"file": name}, "kubeconfig") }
	a := deployment("a", configMap("x", "1"))

	file("edge-kubeconfig")
	eventually.True(t, "the rights are in effect", func() bool {
		r, err := w.schedule(t.Context(), a)
		return err != nil && r.Site.Scheduled.Reason == "Waiting" && strings.Contains(err.Error(), fmt.Sprintf("Secret %q: not found yet", w.ns+"/edge-kubeconfig"))
	})
	w.keep("edge-kubeconfig", "value", w.gate.URL, labels)
	r := w.reconcile(a)
	same(t, "said", "True Applied", said(r)["a"])

	// A changed Secret leads to a new connection.
	other := newGate(t, server(t))
	w.keep("edge-kubeconfig", "value", other.URL, labels)
	w.reconcile(a)
	if other.requests.Load() == 0 {
		t.Error("the changed Secret is not used")
	}
	w.keep("edge-kubeconfig", "config", w.gate.URL, labels)
	file("edge-kubeconfig/config")
	w.reconcile(a)

	// Files come first.
	w.kubeconfig("edge-kubeconfig", w.gate.URL, "")
	file("edge-kubeconfig")
	w.reconcile(a)

	// Secrets without the labels are refused, whatever they have, and so is what a
	// kubeconfig in a file may do.
	w.keep("database", "value", w.gate.URL, map[string]any{"other": "label"})
	program := resource("v1", "Secret", "program")
	program.Set(labels, "metadata", "labels")
	program["stringData"] = map[string]any{"value": "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: " + w.gate.URL + "}}], " +
		"users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}}], contexts: [{name: c, context: {cluster: c, user: u}}]}"}
	w.create(program)
	for name, want := range map[string]string{
		"database": "doesn't have the labels", "program": "its users name programs or files", "a/b/c": "is not the name of a Secret", "Bad_Name": "is not the name of a Secret",
		"edge-kubeconfig2": "not found yet",
	} {
		file(name)
		if _, err := w.schedule(t.Context(), a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The shipped role for the management cluster is enough to write inventories, also
// again, and to remove what they name.
func TestManagementRoleAllowsInventories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	user := "manager-" + w.ns
	w.rbac("", shippedRole(t, "management/management.yaml", "ClusterRole", "tko-management"), user)
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Management: inNamespace(t, user, "")})
	here := func(names ...string) {
		w.site.Package = krm.Package{w.cluster}
		for _, name := range names {
			r := configMap(name, "1")
			r.Set(w.ns, "metadata", "namespace")
			w.site.Package = append(w.site.Package, annotated(r, kubernetes.AnnotationTarget, "management"))
		}
	}
	d := deployment("a", configMap("workload", "1"))
	here("one")
	eventually.NoError(t, "the first inventory", func() error {
		_, err := w.schedule(t.Context(), d)
		return err
	})
	here("one", "two")
	if _, err := w.schedule(t.Context(), d); err != nil {
		t.Errorf("the second inventory: %v", err)
	}
	same(t, "what is there", []string{"one", "two", "workload"}, w.there("ConfigMap"))
}
