package python

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/cli/scaffold"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// TestSchedulePluginOnKubernetes runs the schedule plugin of tko plugin new on a real
// cluster, with its lines that apply resources enabled.
func TestSchedulePluginOnKubernetes(t *testing.T) {
	cluster := kube.Start(t, kube.Options{})
	for _, variable := range cluster.Env(cluster.Kubeconfig) {
		name, value, _ := strings.Cut(variable, "=")
		switch name {
		case "PATH", "KUBECONFIG", "KUBECACHEDIR":
			t.Setenv(name, value)
		}
	}
	t.Setenv("PYTHONPATH", process.PythonSDK())
	context := strings.TrimSpace(cluster.Kubectl(t, "config", "current-context"))

	dir := filepath.Join(t.TempDir(), "plugin")
	trigger := krm.GVK{Group: "example.plugin.nephio.org", Version: "v1", Kind: "Cluster"}
	if _, err := scaffold.Write(scaffold.Plugin{Type: tko.PluginSchedule, Name: "apply", Language: "python", Trigger: trigger}, dir); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "apply.py")
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "# tko.tools."); n != 2 {
		t.Fatalf("the plugin has %d lines that apply resources", n)
	}
	if err := os.WriteFile(program, []byte(strings.ReplaceAll(string(text), "# tko.tools.", "tko.tools.")), 0o600); err != nil {
		t.Fatal(err)
	}

	server := process.StartServer(t, "--store=sqlite::memory:", "--plugin-environment=PYTHONPATH,KUBECONFIG,KUBECACHEDIR", "--python-env="+process.Python(t))
	c, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.RegisterPlugin(t.Context(), tko.Plugin{Type: tko.PluginSchedule, Name: "apply", Arguments: []string{program}, Triggers: []krm.GVK{trigger}, Properties: map[string]string{tko.PropertyNetwork: "true"}}); err != nil {
		t.Fatal(err)
	}
	site := krm.Package{{"apiVersion": "example.plugin.nephio.org/v1", "kind": "Cluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"context": context}}}
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "edge", Package: site}); err != nil {
		t.Fatal(err)
	}
	// The cluster-scoped namespace is last in the package, but its content needs it
	// first.
	pkg := krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "greeting", "namespace": "core"}, "data": map[string]any{"text": "Grüße", "yes": "yes"}},
		{"apiVersion": "metadata.nephio.org/v1alpha1", "kind": "Example", "metadata": map[string]any{"name": "e"}, "spec": map[string]any{"a": "b"}},
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "core"}},
	}
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Site: "edge", Merge: pkg})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Log(server.Log())
		}
	}()
	eventually.NoError(t, "the deployment in the cluster", func() error {
		out, _, code := cluster.Try(t, cluster.Kubeconfig, "", "get", "configmap", "greeting", "--namespace=core", "--output=jsonpath={.data.text} {.data.yes}")
		if code != 0 {
			d, err := c.Deployment(t.Context(), id, 0)
			return fmt.Errorf("its conditions are %+v, %w", d.Stamp.Conditions, err)
		}
		if out != "Grüße yes" {
			t.Errorf("the cluster has %q", out)
		}
		return nil
	})

	// Objects that the plugin deletes are removed.
	apply := python(t, "-c", `import sys, tko
package = tko.decode_package(b"{apiVersion: v1, kind: ConfigMap, metadata: {name: greeting, namespace: core}}", "yaml")
tko.tools.kubectl.delete(package, kube_context=sys.argv[1])
tko.tools.kubectl.delete(package)`, context)
	apply.Env = append(cluster.Env(cluster.Kubeconfig), "PYTHONPATH="+process.PythonSDK(), "PYTHONDONTWRITEBYTECODE=1")
	run(t, apply)
	if left := cluster.Kubectl(t, "get", "configmaps", "--namespace=core", "--output=name"); strings.Contains(left, "greeting") {
		t.Errorf("the object still exists: %s", left)
	}
}
