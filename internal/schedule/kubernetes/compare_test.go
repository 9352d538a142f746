package kubernetes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// compare returns the differences of a world's site, as lines.
func (w *world) compare(deployments ...tko.Deployment) []string {
	w.t.Helper()
	found, err := w.target.Compare(w.t.Context(), w.cluster, w.site, deployments, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := []string{}
	for _, text := range found.Unsearched {
		lines = append(lines, "unsearched: "+text)
	}
	for _, c := range slices.Concat(found.Changes, found.Orphans) {
		if c.Verb == tko.SiteOrphan && !strings.Contains(c.Object, w.ns) {
			continue // tests share a cluster
		}
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
		`a update ConfigMap "NS/changed"`, `  data.key: "1" → "2"`,
		`a remove ConfigMap "NS/dropped"`, `  once all objects of the deployment are healthy`,
		`a update ConfigMap "NS/edited"`, `  data.key: "by hand" → "1"`,
		`a blocked ConfigMap "NS/foreign"`, `  exists already, and TKO did not make it: annotate it with tko.nephio.org/adopt: "true" to take it over, or give it another name`, `  data.key: "0" → "1"`,
		`a create ConfigMap "NS/lost"`,
		`a update Secret "NS/password"`, `  data.key: hidden → hidden`,
		`a blocked example.com/v1 Radio "r"`, `  is of a kind that the cluster does not have: install its definition there, or put it into a deployment of the site`,
		`b remove ConfigMap "NS/gone"`,
	}
	got := w.compare(after...)
	if diff := cmp.Diff(want, got); diff != "" {
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

func TestCompareReportsOrphans(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t, kubernetes.Options{}), newWorld(t, kubernetes.Options{})
	other.set(w.ns, "namespace") // another site in the same cluster, whose inventories are elsewhere
	other.reconcile(deployment("theirs", configMap("theirs", "1")))
	a, lost := deployment("a", configMap("a", "1"), resource("v1", "Namespace", w.ns+"-more")), deployment("lost", configMap("lost", "1"), resource("v1", "Namespace", w.ns+"-lost"))
	w.reconcile(a, lost)
	labelled := func(name string) krm.Resource {
		r := configMap(name, "1")
		r.Set("copied", "metadata", "labels", kubernetes.LabelDeployment)
		return r
	}
	owned := labelled("owned")
	owned.Set([]any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": w.must("ConfigMap", "a").Text("metadata", "uid")}}, "metadata", "ownerReferences")
	w.create(owned) // garbage collection removes it with its owner
	if diff := cmp.Diff([]string{}, w.compare(a, lost)); diff != "" {
		t.Errorf("without orphans: %s", diff)
	}
	w.create(labelled("copy"))
	at := w.client.Resource(kinds["ConfigMap"]).Namespace(w.ns + "-tko")
	list, err := at.List(t.Context(), metav1.ListOptions{LabelSelector: "tko.nephio.org/inventory"})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Items {
		if id, _, _ := unstructured.NestedString(i.Object, "data", "deployment"); id == "lost" {
			if err := at.Delete(t.Context(), i.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{`copied orphan ConfigMap "NS/copy"`, `lost orphan ConfigMap "NS/lost"`, `lost orphan Namespace "NS-lost"`}
	if diff := cmp.Diff(want, w.compare(a)); diff != "" {
		t.Error(diff)
	}
	w.reconcile(a)
	if w.must("ConfigMap", "lost") == nil || w.must("ConfigMap", "copy") == nil {
		t.Error("a reconciliation removed an orphan")
	}
}
