package kubernetes_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

// What others do to our objects is noticed, and so is a cluster that goes.
func TestWatch(t *testing.T) {
	t.Parallel()
	stirred := make(chan tko.SiteID, 100)
	w := newWorld(t, kubernetes.Options{Enqueue: func(id tko.SiteID) { stirred <- id }})
	d := deployment("a", configMap("x", "1"), configMap("y", "1"), workload(1))
	w.look(d)
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
		case id := <-stirred:
			same(t, what, w.site.ID, id)
		case <-time.After(patience):
			t.Fatalf("%s isn't noticed", what)
		}
		w.gate.down.Store(false)
		w.look(d)
	}
	if n := len(stirred); n > 4 {
		t.Errorf("%d looks were asked for beside", n)
	}
	same(t, "corrected", "1", w.must("ConfigMap", "x").Text("data", "key"))
}

// Only so many sites are watched, those that changed last; what isn't watched
// costs nothing, and all ends.
func TestWatchedSites(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	w := newWorld(t, kubernetes.Options{Watched: 2, Enqueue: func(tko.SiteID) { asked.Add(1) }})
	first := w.site.ID
	site := func(n int) tko.Deployment {
		w.site.ID = tko.SiteID(fmt.Sprintf("%s-%d", first, n))
		return deployment(tko.DeploymentID(fmt.Sprintf("d%d", n)), configMap(fmt.Sprintf("of-%d", n), "1"))
	}
	for n := range 4 {
		w.look(site(n))
	}
	same(t, "watched", 2, w.target.Watching())
	w.look(site(0)) // nothing changed there
	w.patch("ConfigMap", "of-0", `{"data": {"key": "2"}}`)
	w.patch("ConfigMap", "of-3", `{"data": {"key": "2"}}`)
	await(t, "a watched site to be told of", func() bool { return asked.Load() > 0 })
	same(t, "watched", 2, w.target.Watching())
	w.look() // site 0 has nothing any more
	w.target.Close()
	same(t, "watched", 0, w.target.Watching())
}
