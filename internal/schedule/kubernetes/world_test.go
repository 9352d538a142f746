package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// timeLimit bounds waits that eventually doesn't. It is generous for busy machines.
const timeLimit = 2 * time.Minute

// A gate is a proxy before the API server. It counts requests, and can fail writes.
type gate struct {
	*httptest.Server
	requests, writes atomic.Int64
	active           atomic.Int64
	refused          atomic.Int64
	down             atomic.Bool
	last             atomic.Int64 // writes that still pass, if not negative
	dead             atomic.Bool  // reject all requests after the last write
	lost             bool         // execute the first rejected write, but lose its response

	mu    sync.Mutex
	paths []string // of writes
}

func newGate(t *testing.T, config *rest.Config) *gate {
	t.Helper()
	upstream, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	proxy.Transport = transport
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	g := &gate{}
	g.last.Store(-1)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.active.Add(1)
		defer g.active.Add(-1)
		if g.down.Load() || g.dead.Load() {
			g.refused.Add(1)
			panic(http.ErrAbortHandler)
		}
		g.requests.Add(1)
		if r.Method != http.MethodGet {
			n := g.writes.Add(1)
			g.mu.Lock()
			g.paths = append(g.paths, r.Method+" "+r.URL.Path)
			g.mu.Unlock()
			if last := g.last.Load(); last >= 0 && n > last {
				if !g.dead.Swap(true) && g.lost {
					proxy.ServeHTTP(httptest.NewRecorder(), r)
				}
				panic(http.ErrAbortHandler)
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// A world is a site, its cluster and a target, with its own namespaces.
type world struct {
	t       *testing.T
	target  *kubernetes.Target
	gate    *gate
	client  dynamic.Interface
	dir     string // folder of kubeconfigs
	site    tko.Site
	cluster krm.Resource
	ns      string
}

var worlds atomic.Int64

func newWorld(t *testing.T, o kubernetes.Options) *world {
	t.Helper()
	return newWorldAt(t, server(t), o)
}

func newWorldAt(t *testing.T, config *rest.Config, o kubernetes.Options) *world {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	n := worlds.Add(1)
	w := &world{t: t, gate: newGate(t, config), client: client, dir: t.TempDir(), ns: fmt.Sprintf("w%d-%d", n, os.Getpid())}
	o.Kubeconfigs = w.dir
	w.kubeconfig("edge.yaml", w.gate.URL, "")
	w.target = kubernetes.New(o)
	t.Cleanup(func() { w.target.Close() })
	w.site = tko.Site{ID: tko.SiteID(w.ns)}
	w.cluster = krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}, "namespace": w.ns, "inventoryNamespace": w.ns + "-tko"},
	}
	w.create(resource("v1", "Namespace", w.ns))
	return w
}

func (w *world) kubeconfig(name, server, token string) {
	w.t.Helper()
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], "+
		"users: [{name: u, user: {token: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}]}", server, token)
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) set(value any, path ...string) {
	w.cluster.Set(value, append([]string{"spec"}, path...)...)
}

func (w *world) schedule(ctx context.Context, deployments ...tko.Deployment) (report.Report, error) {
	return w.target.Schedule(ctx, w.cluster, w.site, deployments, nil)
}

// reconcile reconciles the site, which must not fail.
func (w *world) reconcile(deployments ...tko.Deployment) report.Report {
	w.t.Helper()
	r, err := w.schedule(w.t.Context(), deployments...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

var kinds = map[string]schema.GroupVersionResource{
	"ConfigMap":                {Version: "v1", Resource: "configmaps"},
	"Secret":                   {Version: "v1", Resource: "secrets"},
	"Namespace":                {Version: "v1", Resource: "namespaces"},
	"Service":                  {Version: "v1", Resource: "services"},
	"Pod":                      {Version: "v1", Resource: "pods"},
	"Job":                      {Group: "batch", Version: "v1", Resource: "jobs"},
	"Deployment":               {Group: "apps", Version: "v1", Resource: "deployments"},
	"CustomResourceDefinition": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	"Kustomization":            {Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"},
	"Application":              {Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
}

func (w *world) at(kind string) dynamic.ResourceInterface {
	r, ok := kinds[kind]
	if !ok {
		w.t.Fatalf("no resource for %s", kind)
	}
	if kind == "Namespace" || kind == "CustomResourceDefinition" {
		return w.client.Resource(r)
	}
	return w.client.Resource(r).Namespace(w.ns)
}

func (w *world) create(r krm.Resource) {
	w.t.Helper()
	kind, _ := r["kind"].(string)
	u := &unstructured.Unstructured{Object: map[string]any(r.Clone())}
	if _, err := w.at(kind).Create(w.t.Context(), u, metav1.CreateOptions{FieldManager: "other"}); err != nil {
		w.t.Fatal(err)
	}
}

// get returns an object, or nil if it does not exist.
func (w *world) get(kind, name string) krm.Resource {
	w.t.Helper()
	u, err := w.at(kind).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return krm.Resource(u.Object)
}

func (w *world) must(kind, name string) krm.Resource {
	w.t.Helper()
	r := w.get(kind, name)
	if r == nil {
		w.t.Fatalf("%s %q: not found", kind, name)
	}
	return r
}

// patch changes an object as kubectl edit does.
func (w *world) patch(kind, name, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.at(kind).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}, subresources...)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(kind, name string) {
	w.t.Helper()
	if err := w.at(kind).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// inventory returns the entries of all inventories in the world's namespace.
func (w *world) inventory() []string {
	w.t.Helper()
	list, err := w.client.Resource(kinds["ConfigMap"]).Namespace(w.ns+"-tko").List(w.t.Context(), metav1.ListOptions{LabelSelector: "tko.nephio.org/inventory"})
	if err != nil {
		w.t.Fatal(err)
	}
	all := []string{}
	for _, i := range list.Items {
		data, _, _ := unstructured.NestedStringMap(i.Object, "data")
		for line := range strings.Lines(data["objects"]) {
			var entry struct{ Kind, Name string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, data["deployment"]+" "+entry.Kind+" "+entry.Name)
		}
	}
	slices.Sort(all)
	return all
}

// inventoryText returns the stored text of all inventories in the world's namespace.
func (w *world) inventoryText() string {
	w.t.Helper()
	list, err := w.client.Resource(kinds["ConfigMap"]).Namespace(w.ns+"-tko").List(w.t.Context(), metav1.ListOptions{LabelSelector: "tko.nephio.org/inventory"})
	if err != nil {
		w.t.Fatal(err)
	}
	var texts []string
	for _, i := range list.Items {
		data, _, _ := unstructured.NestedStringMap(i.Object, "data")
		texts = append(texts, data["objects"])
	}
	return strings.Join(texts, "")
}

// there returns the names of the objects of a kind with TKO's label.
func (w *world) there(kind string) []string {
	w.t.Helper()
	list, err := w.at(kind).List(w.t.Context(), metav1.ListOptions{LabelSelector: kubernetes.LabelDeployment})
	if err != nil {
		w.t.Fatal(err)
	}
	names := []string{}
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	slices.Sort(names)
	return names
}

// pods returns the names of the pods of a workload.
func (w *world) pods(app string) (names []string) {
	w.t.Helper()
	list, err := w.at("Pod").List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	return names
}

func resource(apiVersion, kind, name string) krm.Resource {
	return krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
}

func configMap(name, value string) krm.Resource {
	r := resource("v1", "ConfigMap", name)
	r["data"] = map[string]any{"key": value}
	return r
}

// frozen returns an object that is immutable.
func frozen(name, value string) krm.Resource {
	r := configMap(name, value)
	r["immutable"] = true
	return r
}

func secret(name, value string) krm.Resource {
	r := resource("v1", "Secret", name)
	r["stringData"] = map[string]any{"key": value}
	return r
}

func workload(replicas int64) krm.Resource {
	const name = "web"
	r := resource("apps/v1", "Deployment", name)
	labels := map[string]any{"app": name}
	r["spec"] = map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i:1", "resources": map[string]any{"requests": map[string]any{"cpu": "1000m"}}}}},
		},
	}
	return r
}

func annotated(r krm.Resource, name, value string) krm.Resource {
	r = r.Clone()
	r.SetAnnotation(name, value)
	return r
}

func deployment(id tko.DeploymentID, pkg ...krm.Resource) tko.Deployment {
	return tko.Deployment{ID: id, Prepared: true, Approved: true, Package: append(krm.Package{
		{"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "deployment"}},
	}, pkg...)}
}

// said returns the status and reason of the Scheduled condition of each deployment,
// such as "True Applied".
func said(r report.Report) map[tko.DeploymentID]string {
	m := map[tko.DeploymentID]string{}
	for id, s := range r.Deployments {
		m[id] = s.Scheduled.Status + " " + s.Scheduled.Reason
	}
	return m
}

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// server returns the API server that the tests of this package share.
func server(t testing.TB) *rest.Config {
	t.Helper()
	return kubetest.Config(kube.Shared(t, kube.Options{}))
}
