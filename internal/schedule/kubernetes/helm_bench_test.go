package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

const siteCharts = 10

// newChartFleet returns sites of ten deployments, each with a chart of five objects.
func newChartFleet(b *testing.B) *fleet {
	b.Helper()
	f := newFleet(b)
	charts := b.TempDir()
	files := map[string]string{"Chart.yaml": "{apiVersion: v2, name: web, version: 1.0.0}", "values.yaml": "{mode: default}"}
	if err := os.MkdirAll(filepath.Join(charts, "web/templates"), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range 5 {
		files[fmt.Sprintf("templates/%d.yaml", i)] = fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-%d'}, data: {mode: '{{ .Values.mode }}'}}", i)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(charts, "web", name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	f.target = kubernetes.New(kubernetes.Options{Kubeconfigs: f.dir, Charts: charts})
	b.Cleanup(f.target.Close)
	return f
}

func (f *fleet) lookAtCharts(b *testing.B, n int) {
	cluster := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "spec": map[string]any{
		"kubeconfig": map[string]any{"file": "edge.yaml"}, "namespace": f.namespace(n), "inventoryNamespace": f.namespace(n) + "-tko",
	}}
	var all []tko.Deployment
	for i := range siteCharts {
		chart := release(fmt.Sprintf("web-%d", i), map[string]any{"mode": "{{ 'live' }}"})
		chart.Set("web", "spec", "chart")
		all = append(all, deployment(tko.DeploymentID(fmt.Sprintf("d%d", i)), chart))
	}
	if _, err := f.target.Schedule(b.Context(), cluster, tko.Site{ID: tko.SiteID(f.namespace(n))}, all, nil); err != nil {
		b.Error(err)
	}
}

// BenchmarkInstall installs all charts of a site.
func BenchmarkInstall(b *testing.B) {
	f := newChartFleet(b)
	for b.Loop() {
		b.StopTimer()
		n := f.add(b)
		b.StartTimer()
		f.lookAtCharts(b, n)
	}
	b.ReportMetric(float64(siteCharts*b.N)/b.Elapsed().Seconds(), "releases/s")
}

// BenchmarkCheckCharts reconciles unchanged sites with charts, eight concurrently.
func BenchmarkCheckCharts(b *testing.B) {
	f := newChartFleet(b)
	for range 8 {
		f.lookAtCharts(b, f.add(b))
	}
	for b.Loop() {
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { f.lookAtCharts(b, n+1) })
		}
		all.Wait()
	}
	b.ReportMetric(float64(8*b.N)/b.Elapsed().Seconds(), "sites/s")
}
