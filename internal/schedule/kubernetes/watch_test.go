package kubernetes_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Watches detect changes by other clients, and an API server that stops.
func TestChangesByOthersAreDetected(t *testing.T) {
	t.Parallel()
	enqueued := make(chan tko.SiteID, 100)
	w := newWorld(t, kubernetes.Options{Enqueue: func(id tko.SiteID) { enqueued <- id }})
	d := deployment("a", configMap("x", "1"), configMap("y", "1"), workload(1))
	w.reconcile(d)
	for what, do := range map[string]func(){
		"an edit":   func() { w.patch("ConfigMap", "x", `{"data": {"key": "2"}}`) },
		"a removal": func() { w.delete("ConfigMap", "y") },
		"a status":  func() { w.patch("Deployment", "web", `{"status": {"observedGeneration": 1, "replicas": 1}}`, "status") },
		"a watch that broke": func() {
			w.gate.down.Store(true)
			w.gate.CloseClientConnections()
		},
	} {
		do()
		select {
		case id := <-enqueued:
			same(t, what, w.site.ID, id)
		case <-time.After(timeLimit):
			t.Fatalf("%s: no reconciliation is requested", what)
		}
		w.gate.down.Store(false)
		w.reconcile(d)
	}
	if n := len(enqueued); n > 4 {
		t.Errorf("%d additional reconciliations were requested", n)
	}
	same(t, "corrected", "1", w.must("ConfigMap", "x").Text("data", "key"))
}

// The last changed sites are watched, up to the limit. All watches end with the
// target.
func TestNumberOfWatchedSitesIsLimited(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := newWorld(t, kubernetes.Options{Watched: 2, Enqueue: func(tko.SiteID) { asked.Add(1) }})
	first := w.site.ID
	site := func(n int) tko.Deployment {
		w.site.ID = tko.SiteID(fmt.Sprintf("%s-%d", first, n))
		return deployment(tko.DeploymentID(fmt.Sprintf("d%d", n)), configMap(fmt.Sprintf("of-%d", n), "1"))
	}
	for n := range 4 {
		w.reconcile(site(n))
	}
	same(t, "watched", 2, w.target.Watching())
	w.reconcile(site(0)) // without a change
	w.patch("ConfigMap", "of-0", `{"data": {"key": "2"}}`)
	w.patch("ConfigMap", "of-3", `{"data": {"key": "2"}}`)
	eventually.True(t, "a watched site to be told of", func() bool { return asked.Load() > 0 })
	same(t, "watched", 2, w.target.Watching())
	w.reconcile() // site 0 has no objects any more
	w.target.Close()
	same(t, "watched", 0, w.target.Watching())
}
