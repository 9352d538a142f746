package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// define makes the definitions of the tools, once for all tests.
func (w *world) define() {
	w.t.Helper()
	for _, tool := range []puller.Tool{puller.Flux, puller.ArgoCD} {
		gvk := tool.GVK()
		plural := strings.ToLower(gvk.Kind) + "s"
		r := resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural+"."+gvk.Group)
		free := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		r.Set(map[string]any{
			"group": gvk.Group, "scope": "Namespaced", "names": map[string]any{"kind": gvk.Kind, "plural": plural},
			"versions": []any{map[string]any{"name": gvk.Version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": free}}},
		}, "spec")
		u := &unstructured.Unstructured{Object: map[string]any(r)}
		if _, err := w.at("CustomResourceDefinition").Create(w.t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
		eventually.True(w.t, gvk.Kind+" is served", func() bool {
			_, err := w.at(gvk.Kind).List(w.t.Context(), metav1.ListOptions{})
			return err == nil
		})
	}
}

// ask observes the object of a tool in the world's namespace.
func (w *world) ask(tool puller.Tool, name string, objects ...puller.Object) puller.Report {
	w.t.Helper()
	q := puller.Question{Site: w.site.ID, Spec: puller.Spec{Tool: tool, Namespace: w.ns, Name: name, Kubeconfig: trigger.KubeconfigRef{File: "edge.yaml"}}, Objects: objects}
	said, err := w.target.Observe(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return said
}

func (w *world) object(kind, name string) puller.Object {
	o := puller.Object{Version: "v1", Kind: kind, Namespace: w.ns, Name: name}
	if kind == "Deployment" {
		o.Group = "apps"
	}
	return o
}

func kustomization(name string, entries ...string) krm.Resource {
	r := resource("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name)
	var all []any
	for _, id := range entries {
		all = append(all, map[string]any{"id": id, "v": "v1"})
	}
	r["spec"] = map[string]any{"interval": "10m"}
	r["status"] = map[string]any{
		"lastAppliedRevision": "main@sha1:aaa", "lastAttemptedRevision": "main@sha1:aaa", "inventory": map[string]any{"entries": all},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
	}
	return r
}

func TestObjectsOfAKustomizationAreReadInItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.define()
	w.create(configMap("there", "x"))
	w.create(workload(1))
	entry := func(name, kind string) string { return w.ns + "_" + name + "_" + kind }
	w.create(kustomization("lagos", entry("there", "_ConfigMap"), entry("gone", "_ConfigMap"), entry("web", "apps_Deployment")))

	if said := w.ask(puller.Flux, "accra"); !said.Missing || said.Problem != "" {
		t.Errorf("a Kustomization that doesn't exist: %+v", said)
	}
	got := w.ask(puller.Flux, "lagos", w.object("ConfigMap", "there"), w.object("ConfigMap", "gone"), w.object("ConfigMap", "of-others"), w.object("Deployment", "web"))
	listed := puller.Found{Listed: true, Synced: true, Known: true, Health: puller.Healthy}
	missing, starting := listed, listed
	missing.Health, missing.Why = puller.Unhealthy, "is missing"
	starting.Health, starting.Why = puller.InProgress, got.Objects[3].Why
	want := puller.Report{
		Applied: []string{"main@sha1:aaa"}, Attempted: []string{"main@sha1:aaa"}, Health: puller.Healthy, Interval: 10 * time.Minute,
		Objects: []puller.Found{listed, missing, {}, starting},
	}
	if diff := cmp.Diff(want, got); diff != "" || starting.Why == "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.patch("Deployment", "web", `{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded"}]}}`, "status")
	if got := w.ask(puller.Flux, "lagos", w.object("Deployment", "web")).Objects[0]; got.Health != puller.Unhealthy {
		t.Errorf("a workload that fails is %+v", got)
	}

	// In another cluster, TKO can't read them: nothing is asked.
	w.patch("Kustomization", "lagos", `{"spec":{"kubeConfig":{"secretRef":{"name":"x"}}}}`)
	if got := w.ask(puller.Flux, "lagos", w.object("ConfigMap", "there")); !got.Elsewhere || got.Objects[0].Known || !got.Objects[0].Listed {
		t.Errorf("applied to another cluster: %+v", got)
	}

	// Argo CD says itself how its objects are.
	r := resource("argoproj.io/v1alpha1", "Application", "lagos")
	r["status"] = map[string]any{"sync": map[string]any{"status": "Synced", "revision": "bbb"}, "health": map[string]any{"status": "Degraded"}, "resources": []any{
		map[string]any{"version": "v1", "kind": "ConfigMap", "namespace": w.ns, "name": "gone", "status": "Synced"},
	}}
	w.create(r)
	if got := w.ask(puller.ArgoCD, "lagos", w.object("ConfigMap", "gone")); got.Health != puller.Unhealthy || got.Objects[0] != (puller.Found{Listed: true, Synced: true, Known: true}) {
		t.Errorf("an Application: %+v", got)
	}
}

// Many sites of a hub cost a list and a watch, and not a request each. A change enqueues the
// site that it concerns, and no other.
func TestSitesOfAHubShareAListAndAWatch(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var enqueued []tko.SiteID
	w := newWorld(t, kubernetes.Options{Enqueue: func(id tko.SiteID) {
		mu.Lock()
		defer mu.Unlock()
		enqueued = append(enqueued, id)
	}})
	w.define()
	const sites = 40
	for n := range sites {
		w.create(kustomization(fmt.Sprintf("site-%d", n)))
	}
	eventually.True(t, "the hub is watched", func() bool { return w.ask(puller.Flux, "site-0").Watched })
	before := w.gate.requests.Load()
	for n := range sites {
		w.site.ID = tko.SiteID(fmt.Sprintf("site/%d", n))
		if said := w.ask(puller.Flux, fmt.Sprintf("site-%d", n)); !said.Watched || !slices.Equal(said.Applied, []string{"main@sha1:aaa"}) {
			t.Fatalf("site %d: %+v", n, said)
		}
	}
	if n := w.gate.requests.Load() - before; n > 2 {
		t.Errorf("%d sites made %d requests", sites, n)
	}
	w.patch("Kustomization", "site-7", `{"status":{"lastAppliedRevision":"main@sha1:bbb"}}`)
	eventually.True(t, "the site of a changed Kustomization is enqueued", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(enqueued, "site/7")
	})
	if said := w.ask(puller.Flux, "site-7"); !slices.Equal(said.Applied, []string{"main@sha1:bbb"}) {
		t.Errorf("it says %+v", said)
	}
	w.delete("Kustomization", "site-8")
	eventually.True(t, "the site of a deleted Kustomization is enqueued", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(enqueued, "site/8")
	})
	if said := w.ask(puller.Flux, "site-8"); !said.Missing {
		t.Errorf("it says %+v", said)
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.ContainsFunc(enqueued, func(id tko.SiteID) bool { return id != "site/7" && id != "site/8" }) {
		t.Errorf("enqueued %v", enqueued)
	}
}

// While the cluster is away, no earlier report is used; afterwards it is watched again.
func TestHubThatIsAwayIsUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{Enqueue: func(tko.SiteID) {}})
	w.define()
	w.create(kustomization("lagos"))
	eventually.True(t, "the hub is watched", func() bool { return w.ask(puller.Flux, "lagos").Watched })
	w.gate.down.Store(true)
	w.gate.CloseClientConnections()
	eventually.True(t, "the hub is unreachable", func() bool {
		said := w.ask(puller.Flux, "lagos")
		return said.Unreachable && said.Problem != "" && !said.Missing
	})
	w.gate.down.Store(false)
	eventually.True(t, "the hub is watched again", func() bool { return w.ask(puller.Flux, "lagos").Watched })
}

func TestClustersAreObservedOnlyWithGrantedKubeconfigs(t *testing.T) {
	t.Parallel()
	declared := filepath.Join(t.TempDir(), "credentials.yaml")
	if err := os.WriteFile(declared, []byte("credentials:\n- {name: 'kubeconfig:edge.yaml', hosts: ['127.0.0.1'], sites: ['ours/**']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := leash.Open(declared)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, kubernetes.Options{Leash: l})
	w.define()
	w.create(kustomization("lagos"))
	w.site.ID = "theirs/1"
	if said := w.ask(puller.Flux, "lagos"); said.Problem == "" || w.gate.requests.Load() != 0 {
		t.Errorf("a site without the grant: %+v, with %d requests", said, w.gate.requests.Load())
	}
	w.site.ID = "ours/1"
	if said := w.ask(puller.Flux, "lagos"); said.Problem != "" || said.Missing {
		t.Errorf("a site with the grant: %+v", said)
	}
}
