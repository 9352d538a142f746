package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

// compare returns the differences of a world's site, as lines.
func (w *world) compare(deployments ...tko.Deployment) []string {
	w.t.Helper()
	changes, err := w.target.Compare(w.t.Context(), w.cluster, w.site, deployments, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := []string{}
	for _, c := range changes {
		line := fmt.Sprintf("%s %s %s", c.Deployment, c.Verb, strings.ReplaceAll(c.Object, w.ns, "NS"))
		lines = append(lines, line)
		for _, detail := range c.Details {
			lines = append(lines, "  "+detail)
		}
	}
	return lines
}

func TestCompareShowsWhatTheNextReconciliationWouldChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	before := []tko.Deployment{
		deployment("a", configMap("changed", "1"), configMap("edited", "1"), configMap("lost", "1"), configMap("dropped", "1"), secret("password", "one")),
		deployment("b", configMap("gone", "1")),
	}
	all := append([]string{"a create ConfigMap \"NS/changed\""}, w.compare(before...)[1:]...)
	if diff := cmp.Diff(all, w.compare(before...)); diff != "" || len(all) != 6 {
		t.Errorf("before the first reconciliation: %d changes, %s", len(all), diff)
	}
	w.reconcile(before...)
	if diff := cmp.Diff([]string{}, w.compare(before...)); diff != "" {
		t.Errorf("after it: %s", diff)
	}

	w.patch("ConfigMap", "edited", `{"data":{"key":"by hand"}}`)
	w.delete("ConfigMap", "lost")
	w.create(configMap("foreign", "0"))
	w.create(resource("v1", "Namespace", w.ns+"-found"))
	inventory, writes := w.inventory(), w.gate.writes.Load()
	after := []tko.Deployment{deployment("a",
		configMap("changed", "2"), configMap("edited", "1"), configMap("lost", "1"), secret("password", "two"), configMap("foreign", "1"),
		resource("v1", "Namespace", w.ns+"-found"), resource("example.com/v1", "Radio", "r"),
	)}
	want := []string{
		`a remove ConfigMap "NS/dropped"`, // but not before all others exist
		`a update ConfigMap "NS/changed"`, `  data.key: "1" → "2"`,
		`a update ConfigMap "NS/edited"`, `  data.key: "by hand" → "1"`,
		`a blocked ConfigMap "NS/foreign"`, `  exists already, and TKO did not make it: annotate it with tko.nephio.org/adopt: "true" to take it over, or give it another name`, `  data.key: "0" → "1"`,
		`a create ConfigMap "NS/lost"`,
		`a update Secret "NS/password"`, `  data.key: hidden → hidden`,
		`a blocked example.com/v1 Radio "r"`, `  is of a kind that the cluster does not have: install its definition there, or put it into a deployment of the site`,
		`b remove ConfigMap "NS/gone"`,
	}
	got := w.compare(after...)
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Error(diff)
	}
	for _, path := range w.gate.paths[writes:] {
		if !strings.HasPrefix(path, "PATCH ") { // dry runs
			t.Errorf("comparing wrote: %s", path)
		}
	}
	if diff := cmp.Diff(inventory, w.inventory()); diff != "" {
		t.Errorf("comparing changed the inventory: %s", diff)
	}
	for name, value := range map[string]string{"changed": "1", "edited": "by hand", "foreign": "0", "gone": "1"} {
		if got := w.must("ConfigMap", name).Text("data", "key"); got != value {
			t.Errorf("comparing changed %s to %q", name, got)
		}
	}
}

func TestCompareReportsAnUnreachableCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.gate.down.Store(true)
	_, err := w.target.Compare(t.Context(), w.cluster, w.site, []tko.Deployment{deployment("a", configMap("a", "1"))}, nil)
	if err == nil || !strings.Contains(err.Error(), "unreachable: connection broken") {
		t.Errorf("got %v", err)
	}
}
