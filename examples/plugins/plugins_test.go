package plugins

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/internal/plugin/plugintest"
	"github.com/tko-orchestrator/tko/test/process"
)

func build(t *testing.T, name string) string {
	t.Helper()
	process.Reads(t, "examples", "krm", "sdk/python/src")
	path := filepath.Join(t.TempDir(), name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestNamespacePluginPassesCases(t *testing.T) {
	plugintest.Run(t, "testdata/namespace", build(t, "namespace"))
}

// The built-in function's plugin is registered in catalog.yaml.
func TestLabelsFunctionPassesCases(t *testing.T) {
	plugintest.RunPlugin(t, "testdata/labels", registered(t, "workload/labels"))
}

// registered returns a plugin of the catalog.
func registered(t *testing.T, name string) tko.Plugin {
	t.Helper()
	catalog, err := demo.Load("..", map[string]string{"BIN": "", "DEMO": ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range catalog.Plugins {
		if p.Name == name {
			return tko.Plugin{Name: p.Name, Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
		}
	}
	t.Fatalf("plugin %q is not in the catalog", name)
	return tko.Plugin{}
}

func TestPoolsPluginPassesCases(t *testing.T) { plugintest.Run(t, "testdata/pools", build(t, "pools")) }

func TestAddressesPluginPassesCases(t *testing.T) {
	plugintest.Run(t, "testdata/addresses", "addresses/addresses.py")
}

// The schedule plugin's output has no details, so its file is checked.
func TestInventoryPluginWritesFile(t *testing.T) {
	program, folder := build(t, "inventory"), t.TempDir()
	input := `
siteId: north/edge-1
sitePackage: []
deployments:
  d2: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: core}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: core}}]
  d1: [{apiVersion: metadata.nephio.org/v1alpha1, kind: NF, metadata: {name: nf}}]
`
	for range 2 { // the second run changes nothing
		command := exec.CommandContext(t.Context(), program, folder)
		command.Stdin = strings.NewReader(input)
		if out, err := command.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "{}" {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(filepath.Join(folder, "north--edge-1.json"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Site        string
			Deployments map[string][]string
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if got.Site != "north/edge-1" || !slices.Equal(got.Deployments["d2"], []string{"ConfigMap core/a", "ConfigMap core/b"}) || len(got.Deployments["d1"]) != 0 {
			t.Errorf("%+v", got)
		}
	}
}
