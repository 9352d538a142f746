package gitops_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
)

// fleetOf has the files of instances i0 to i3 with a value.
func fleetOf(files map[string]string, replicas string) map[string]string {
	if files == nil {
		files = map[string]string{}
	}
	for i := range 4 {
		name := fmt.Sprint("i", i)
		files["deploy/"+name+".osmops.yaml"] = instanceFile(name, replicas)
	}
	return files
}

// The rollout of a source has its network services upgraded in waves; a wave may wait for an
// approval. If an upgrade fails, and the source is to undo that, the instances that have been
// upgraded are upgraded back to the revision before, and the revision isn't applied.
func TestNetworkServicesAreUpgradedInWaves(t *testing.T) {
	t.Parallel()
	server := osmtest.Start(t, osmtest.Options{})
	dir := connections(t, server)
	r := newRepo(t)
	first := r.push(fleetOf(osmFiles(filepath.Join(dir, "nbi.yaml")), "1"))
	s := spec(t, gitops.Settings{Name: "osm", Git: gitops.GitSettings{URL: r.url}, Interval: "1s", Rollout: map[string]any{
		"waves": []any{map[string]any{"name": "canary", "count": float64(2)}, map[string]any{"name": "rest", "approval": "Required"}}, "onFailure": "Undo",
		"limits": map[string]any{"failures": map[string]any{"count": float64(0)}, "concurrent": float64(1)}, "health": map[string]any{"soak": "1s"},
	}})
	s.OSM.Policy.Poll, s.OSM.Policy.Settle, s.OSM.Policy.Retry = 5*time.Millisecond, 50*time.Millisecond, time.Minute
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{s}, Connections: []string{dir}})
	w.sync("osm", first)
	replicas := func() (all []string) {
		for i := range 4 {
			instance, _ := server.Instance(fmt.Sprint("i", i))
			all = append(all, fmt.Sprint(instance.Releases["upf/upf"].Values["replicaCount"]))
		}
		return all
	}

	second := r.push(fleetOf(nil, "2"))
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	asks := w.until("osm", "the second wave waits for an approval", func(s tko.Source) bool {
		return ready(s).Reason == tko.SourceReasonApproval && strings.Contains(ready(s).Message, "wave 2 upgrades 2 network services")
	})
	now := replicas()
	if slices.Sort(now); strings.Join(now, " ") != "1 1 2 2" {
		t.Errorf("the values are %v", now)
	}
	if err := w.controller.Approve(t.Context(), "osm", asks.Status.PendingRemoval); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "the second revision is applied", func(s tko.Source) bool { return s.Status.Applied == second })
	if now := replicas(); strings.Join(now, " ") != "2 2 2 2" {
		t.Errorf("the values are %v", now)
	}

	var mu sync.Mutex
	upgraded := 0
	server.LCM(func(o osmtest.Operation) string {
		mu.Lock()
		defer mu.Unlock()
		if o.Type == "action" && fmt.Sprint(o.Params["replicaCount"]) == "3" {
			upgraded++
			if upgraded == 2 {
				return "timed out"
			}
		}
		return ""
	})
	third := r.push(fleetOf(nil, "3"))
	if err := w.controller.Enqueue(t.Context(), "osm"); err != nil {
		t.Fatal(err)
	}
	w.until("osm", "the third revision is undone", func(s tko.Source) bool {
		c := ready(s)
		return s.Status.Attempted == third && s.Status.Applied == second && c.Reason == tko.SourceReasonStopped && strings.Contains(c.Message, "undone")
	})
	if now := replicas(); strings.Join(now, " ") != "2 2 2 2" || upgraded != 2 {
		t.Errorf("the values are %v, after %d upgrades", now, upgraded)
	}
	fourth := r.push(fleetOf(nil, "2"))
	w.sync("osm", fourth)
}
