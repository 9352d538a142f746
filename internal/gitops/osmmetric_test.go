package gitops_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// Network services are neither measured nor staged: a source whose rollouts ask for that says so,
// and upgrades none without it.
func TestMetricsAndStagingAreRefusedForNetworkServices(t *testing.T) {
	t.Parallel()
	for says, rollout := range map[string]map[string]any{
		"rollout.health.metrics: network services in Open Source MANO are not measured": {
			"health": map[string]any{"metrics": []any{map[string]any{
				"name": "errors", "prometheus": map[string]any{"url": "https://p.example.net", "query": "up"}, "compare": map[string]any{"to": "value", "max": float64(1)},
			}}},
		},
		"rollout.stage: network services in Open Source MANO pull nothing": {"stage": map[string]any{"images": true}},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			server := osmtest.Start(t, osmtest.Options{})
			dir := connections(t, server)
			r := newRepo(t)
			r.push(fleetOf(osmFiles(filepath.Join(dir, "nbi.yaml")), "1"))
			s := spec(t, gitops.Settings{Name: "osm", Git: gitops.GitSettings{URL: r.url}, Interval: "1s", Rollout: rollout})
			w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}, Connections: []string{dir}})
			w.until("osm", "the settings are refused", func(s tko.Source) bool { return strings.Contains(ready(s).Message, says) })
			if _, created := server.Instance("i0"); created {
				t.Error("a network service was created")
			}
		})
	}
}
