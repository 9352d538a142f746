package gitops_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// Network services aren't measured: a source whose rollouts have metrics says so, and upgrades
// none without them.
func TestMetricsAreRefusedForNetworkServices(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	dir := connections(t, server)
	r := newRepo(t)
	r.push(fleetOf(osmFiles(filepath.Join(dir, "nbi.yaml")), "1"))
	s := spec(t, gitops.Settings{Name: "osm", Git: gitops.GitSettings{URL: r.url}, Interval: "1s", Rollout: map[string]any{
		"health": map[string]any{"metrics": []any{map[string]any{
			"name": "errors", "prometheus": map[string]any{"url": "https://p.example.net", "query": "up"}, "compare": map[string]any{"to": "value", "max": float64(1)},
		}}},
	}})
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}, Connections: []string{dir}})
	w.until("osm", "the metrics are refused", func(s tko.Source) bool {
		return strings.Contains(ready(s).Message, "rollout.health.metrics: network services in Open Source MANO are not measured")
	})
	if _, created := server.Instance("i0"); created {
		t.Error("a network service was created without the metrics")
	}
}
