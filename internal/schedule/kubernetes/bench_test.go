package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// A fleet is sites in one cluster, with ten deployments of five objects each, each
// site in its own namespaces.
type fleet struct {
	target *kubernetes.Target
	client dynamic.Interface
	dir    string // folder of kubeconfigs
	n      int
}

const siteObjects = 10 * 5

func newFleet(b *testing.B) *fleet {
	b.Helper()
	c := kube.Shared(b, kube.Options{})
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), text, 0o600); err != nil {
		b.Fatal(err)
	}
	client, err := dynamic.NewForConfig(kubetest.Config(c))
	if err != nil {
		b.Fatal(err)
	}
	target := kubernetes.New(kubernetes.Options{Kubeconfigs: dir})
	b.Cleanup(target.Close)
	return &fleet{target: target, client: client, dir: dir}
}

// add creates the namespaces of another site.
func (f *fleet) add(b *testing.B) int {
	b.Helper()
	f.n++
	for _, name := range []string{f.namespace(f.n), f.namespace(f.n) + "-tko"} {
		u := &unstructured.Unstructured{Object: map[string]any(resource("v1", "Namespace", name))}
		if _, err := f.client.Resource(kinds["Namespace"]).Create(b.Context(), u, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	return f.n
}

func (f *fleet) namespace(n int) string { return fmt.Sprintf("fleet-%p-%d", f, n)[len("fleet-0x"):] }

func (f *fleet) reconcile(b *testing.B, n int) {
	cluster := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "spec": map[string]any{
		"kubeconfig": map[string]any{"file": "edge.yaml"}, "namespace": f.namespace(n), "inventoryNamespace": f.namespace(n) + "-tko",
	}}
	var all []tko.Deployment
	for i := range 10 {
		id := fmt.Sprintf("d%d", i)
		all = append(all, deployment(tko.DeploymentID(id), configMap(id+"-a", "1"), configMap(id+"-b", "1"), configMap(id+"-c", "1"), configMap(id+"-d", "1"), secret(id, "1")))
	}
	if _, err := f.target.Schedule(b.Context(), cluster, tko.Site{ID: tko.SiteID(f.namespace(n))}, all, nil); err != nil {
		b.Error(err)
	}
}

// BenchmarkApply applies all objects of a site for the first time.
func BenchmarkApply(b *testing.B) {
	f := newFleet(b)
	for b.Loop() {
		b.StopTimer()
		n := f.add(b)
		b.StartTimer()
		f.reconcile(b, n)
	}
	b.ReportMetric(float64(siteObjects*b.N)/b.Elapsed().Seconds(), "objects/s")
}

// BenchmarkCheck reconciles unchanged sites, eight concurrently.
func BenchmarkCheck(b *testing.B) {
	f := newFleet(b)
	for range 8 {
		f.reconcile(b, f.add(b))
	}
	for b.Loop() {
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { f.reconcile(b, n+1) })
		}
		all.Wait()
	}
	b.ReportMetric(float64(8*b.N)/b.Elapsed().Seconds(), "sites/s")
}
