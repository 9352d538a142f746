package python

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/cli/scaffold"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// prepared makes a server prepare n deployments with a plugin in Python, and returns
// the time that the preparer took.
func prepared(t testing.TB, n int, persistent string) time.Duration {
	t.Helper()
	t.Setenv("PYTHONPATH", process.PythonSDK())
	data := process.StartServer(t, "--roles=data", "--store=sqlite::memory:")
	c, err := client.Dial(client.Options{Address: data.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	dir := filepath.Join(t.TempDir(), "plugin")
	trigger := krm.GVK{Group: "example.plugin.nephio.org", Version: "v1", Kind: "Example"}
	if _, err := scaffold.Write(scaffold.Plugin{Type: tko.PluginPrepare, Name: "example", Language: "python", Trigger: trigger}, dir); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterPlugin(ctx, tko.Plugin{
		Type: tko.PluginPrepare, Name: "example", Arguments: []string{filepath.Join(dir, "example.py")},
		Properties: map[string]string{tko.PropertyPersistent: persistent}, Triggers: []krm.GVK{trigger},
	}); err != nil {
		t.Fatal(err)
	}
	pkg := krm.Package{{"apiVersion": "example.plugin.nephio.org/v1", "kind": "Example", "metadata": map[string]any{"name": "e"}, "spec": map[string]any{"size": int64(3)}}}
	for i := range 9 { // more resources, as in a common package
		pkg = append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("c", i)}, "data": map[string]any{"a": "b", "c": "d", "e": "f"}})
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t", Package: pkg}); err != nil {
		t.Fatal(err)
	}
	var creating sync.WaitGroup
	for worker := range 8 {
		creating.Go(func() {
			for i := worker; i < n; i += 8 {
				if _, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "t"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()

	began := time.Now()
	process.StartServer(t, "--roles=preparer", "--data="+data.GRPC, "--plugin-environment=PYTHONPATH", "--python-env="+process.Python(t))
	yes := true
	for {
		done := 0
		for d, err := range c.Deployments(ctx, tko.DeploymentSelect{Prepared: &yes}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			_ = d
			done++
		}
		if done == n {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d are prepared", done, n)
		case <-time.After(50 * time.Millisecond):
		}
	}
	took := time.Since(began)
	made := krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: "e"}
	for d, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			t.Fatal(err)
		}
		r := d.Package.Find(made)
		if r.Text("data", "size") != "3" {
			t.Fatalf("deployment %s was not prepared by the plugin: %v", d.ID, d.Package)
		}
	}
	return took
}

// A plugin in Python has the same results in a persistent process as in one for each
// request.
func TestPersistentPluginHasSameResults(t *testing.T) {
	for _, persistent := range []string{"true", "false"} {
		prepared(t, 20, persistent)
	}
}

// BenchmarkPrepare measures the benefit of persistent processes: a plugin in Python
// prepares 1,000 deployments. docs/python-sdk.md has the command.
func BenchmarkPrepare(b *testing.B) {
	for _, persistent := range []string{"false", "true"} {
		b.Run("persistent="+persistent, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(1000/prepared(b, 1000, persistent).Seconds(), "deployments/s")
			}
		})
	}
}
