package python

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// standIns are fake programs kind, kubectl and helm, which record their arguments.
// Clusters of the fake kind are files.
var standIns = map[string]string{
	"kind": `#!/bin/sh
case "$1 $2" in
"get clusters") for f in "$STATE"/clusters/*; do [ -e "$f" ] && basename "$f"; done; exit 0 ;;
"create cluster") cat >"$STATE/config" && touch "$STATE/clusters/$4" ;;
esac
echo "kind $*" >>"$STATE/log"`,
	"kubectl": `#!/bin/sh
[ -e "$STATE/broken" ] && echo "the connection was refused" >&2 && exit 1
{ echo "kubectl $*"; grep -E '^kind:|^  name:' | tr -s ' \n' ' '; echo; } >>"$STATE/log"`,
	"helm": `#!/bin/sh
echo "helm $*" >>"$STATE/log"`,
}

// The example schedule plugin for kind clusters runs with fake programs.
func TestKindExampleManagesClusters(t *testing.T) {
	state, bin := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "clusters"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range standIns {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("STATE", state)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("PYTHONPATH", process.PythonSDK())
	server := process.StartServer(t, "--store=sqlite::memory:", "--plugin-environment=PYTHONPATH,STATE", "--python-env="+process.Python(t), "--retry=200ms")
	c, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	program, err := filepath.Abs("../../examples/plugins/kind/schedule_kind.py")
	if err != nil {
		t.Fatal(err)
	}
	trigger := krm.GVK{Group: "kind.x-k8s.io", Version: "v1alpha4", Kind: "Cluster"}
	if _, err := c.RegisterPlugin(t.Context(), tko.Plugin{Type: tko.PluginSchedule, Name: "kind", Arguments: []string{program}, Triggers: []krm.GVK{trigger}}); err != nil {
		t.Fatal(err)
	}
	site := krm.Package{{
		"apiVersion": "kind.x-k8s.io/v1alpha4", "kind": "Cluster", "metadata": map[string]any{"name": "lagos"},
		"nodes": []any{map[string]any{"role": "control-plane"}, map[string]any{"role": "worker"}},
	}}
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos", Package: site}); err != nil {
		t.Fatal(err)
	}
	deploy := func(name string) {
		t.Helper()
		_, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Site: "lagos", Merge: krm.Package{
			{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name + "-settings", "namespace": name}},
			{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}},
			{"apiVersion": "workload.nephio.org/v1alpha1", "kind": "HelmChart", "metadata": map[string]any{"name": name + "-db", "namespace": name}, "spec": map[string]any{
				"chart": "/charts/db", "parameters": map[string]any{"name": "{{ get('', 'v1', 'Namespace').metadata.name + '-db' }}"},
			}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string, deployments int) {
		t.Helper()
		defer func() {
			if t.Failed() {
				t.Log(server.Log())
			}
		}()
		eventually.NoError(t, want, func() error {
			var said []string
			n := 0
			for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				for _, condition := range d.Stamp.Conditions {
					if condition.Type == tko.ConditionScheduled {
						said = append(said, condition.Status+" "+condition.Message)
						if strings.HasPrefix(condition.Status, want) || strings.Contains(condition.Message, want) {
							n++
						}
					}
				}
			}
			if n != deployments {
				return fmt.Errorf("the conditions are %q", said)
			}
			return nil
		})
	}
	log := func() string {
		text, err := os.ReadFile(filepath.Join(state, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	deploy("core")
	says("True", 1)
	apply := "kubectl --context=kind-lagos apply --server-side --field-manager=tko --force-conflicts --filename=-\n"
	want := "kind create cluster --name lagos --config -\n" +
		apply + "kind: Namespace name: core \n" +
		apply + "kind: ConfigMap name: core-settings \n" +
		`helm upgrade --install --kube-context=kind-lagos --namespace=core --create-namespace --set-json=name="core-db" -- core-db /charts/db` + "\n"
	if got := log(); !strings.HasPrefix(got, want) {
		t.Errorf("the calls are:\n%swant:\n%s", got, want)
	}
	config, err := os.ReadFile(filepath.Join(state, "config"))
	if err != nil || !strings.Contains(string(config), "role: worker") || strings.Contains(string(config), "metadata") {
		t.Errorf("kind accepts its own fields only: %v\n%s", err, config)
	}

	// A failure is reported and retried; the cluster is created once.
	if err := os.WriteFile(filepath.Join(state, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	deploy("ran")
	says("the connection was refused", 1)
	if err := os.Remove(filepath.Join(state, "broken")); err != nil {
		t.Fatal(err)
	}
	says("True", 2)
	got := log()
	if n := strings.Count(got, "kind create"); n != 1 {
		t.Errorf("%d clusters were created, want 1", n)
	}
	if !strings.Contains(got, "name: ran-settings") || !strings.Contains(got, "ran-db") {
		t.Errorf("the second deployment is missing:\n%s", got)
	}
}
