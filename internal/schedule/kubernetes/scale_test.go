package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// BenchmarkSites reconciles many sites with one target (TKO_BENCH_SITES, 1,000 by
// default), 64 concurrently as a meta-scheduler does. Each site has its own
// kubeconfig, and so connection, and its own namespaces: one API server represents
// many clusters.
func BenchmarkSites(b *testing.B) {
	sites := 1000
	if text, ok := os.LookupEnv("TKO_BENCH_SITES"); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		sites = n
	}
	f := newFleet(b)
	f.target.Close()
	text, err := os.ReadFile(filepath.Join(f.dir, "edge.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	for n := range sites {
		if err := os.WriteFile(filepath.Join(f.dir, fmt.Sprintf("%d.yaml", n+1)), text, 0o600); err != nil {
			b.Fatal(err)
		}
		f.add(b)
	}
	all := func(reconcile func(n int)) time.Duration {
		began := time.Now()
		var workers sync.WaitGroup
		var next atomic.Int64
		for range 64 {
			workers.Go(func() {
				for n := next.Add(1); n <= int64(sites); n = next.Add(1) {
					reconcile(int(n))
				}
			})
		}
		workers.Wait()
		return time.Since(began)
	}
	reconcile := func(n int) {
		cluster := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "spec": map[string]any{
			"kubeconfig": map[string]any{"file": fmt.Sprintf("%d.yaml", n)}, "namespace": f.namespace(n), "inventoryNamespace": f.namespace(n) + "-tko",
		}}
		d := deployment("d", configMap("a", "1"), configMap("b", "1"), configMap("c", "1"), configMap("d", "1"), secret("e", "1"))
		if _, err := f.target.Schedule(b.Context(), cluster, tko.Site{ID: tko.SiteID(f.namespace(n))}, []tko.Deployment{d}, nil); err != nil {
			b.Error(err)
		}
	}
	state := func() (goroutines, heap float64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(runtime.NumGoroutine()), float64(m.HeapAlloc + m.StackInuse)
	}
	each := func(what string, watchedSites int) {
		goroutines, heap := state()
		f.target = kubernetes.New(kubernetes.Options{Kubeconfigs: f.dir, Idle: time.Hour, Watched: watchedSites, Enqueue: func(tko.SiteID) {}})
		took := all(reconcile)
		if watchedSites > 0 {
			for f.target.Watches() < 2*sites { // of ConfigMaps and of Secrets
				time.Sleep(10 * time.Millisecond)
			}
		}
		g, h := state()
		b.ReportMetric((g-goroutines)/float64(sites), what+"-goroutines/site")
		b.ReportMetric((h-heap)/float64(sites)/1024, what+"-KiB/site")
		if watchedSites < 0 {
			b.ReportMetric(float64(sites*5)/took.Seconds(), "applied-objects/s")
			checked := all(reconcile)
			b.ReportMetric(float64(sites)/checked.Seconds(), "checked-sites/s")
		}
		f.target.Close()
	}
	goroutines, heap := state()
	each("connected", -1)
	each("watched", sites)
	g, h := state()
	b.ReportMetric((g-goroutines)/float64(sites), "closed-goroutines/site")
	b.ReportMetric((h-heap)/float64(sites)/1024, "closed-KiB/site")
	b.ReportMetric(0, "ns/op")
}
