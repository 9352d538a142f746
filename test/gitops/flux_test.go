package gitops

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A publisher simulates source-controller: it serves an artifact for each revision,
// retains two, and reports them in the object's status.
type publisher struct {
	t        *testing.T
	c        *kube.Cluster
	web      *httptest.Server
	mu       sync.Mutex
	archives map[string][]byte   // by path
	paths    map[string][]string // of archives, by object, the newest last
	events   []map[string]any    // received for notification-controller
}

func publish(t *testing.T, c *kube.Cluster) *publisher {
	t.Helper()
	p := &publisher{t: t, c: c, archives: map[string][]byte{}, paths: map[string][]string{}}
	p.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.Method == http.MethodPost {
			var event map[string]any
			if err := json.NewDecoder(r.Body).Decode(&event); err == nil {
				p.events = append(p.events, event)
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		data, ok := p.archives[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(p.web.Close)
	return p
}

// archive returns a tar.gz as source-controller makes it.
func archive(t *testing.T, files map[string]string, more ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range more {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// push publishes a revision of an object, and returns its name.
func (p *publisher) push(kind, name string, data []byte, change ...func(artifact map[string]any)) string {
	p.t.Helper()
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	revision := "main@sha1:" + digest[:40]
	path := "/" + kind + "/" + name + "/" + digest + ".tar.gz"
	p.mu.Lock()
	p.archives[path] = data
	p.paths[name] = append(p.paths[name], path)
	if n := len(p.paths[name]); n > 2 {
		delete(p.archives, p.paths[name][n-3])
	}
	p.mu.Unlock()
	artifact := map[string]any{
		"url": p.web.URL + path, "path": path, "revision": revision, "digest": "sha256:" + digest, "lastUpdateTime": time.Now().UTC().Format(time.RFC3339), "size": len(data),
	}
	for _, c := range change {
		c(artifact)
	}
	p.status(kind, name, artifact)
	return revision
}

func (p *publisher) status(kind, name string, artifact map[string]any) {
	p.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"artifact": artifact}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.c.Kubectl(p.t, "patch", kind, name, "--subresource=status", "--type=merge", "-p", string(patch))
}

func gitOps(name, kind, source, more string) string {
	return fmt.Sprintf("apiVersion: tko.nephio.org/v1beta1\nkind: GitOps\nmetadata: {name: %s, namespace: default}\nspec:\n  interval: 10m\n  prune: true\n  sourceRef: {kind: %s, name: %s}\n%s", name, kind, source, more)
}

func gitRepository(name string) string {
	return fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: %s, namespace: default}\nspec: {interval: 1m, url: 'https://example.com/x.git'}\n", name)
}

func aSite(id string) string {
	return fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nspec: {siteId: %s}\n", id)
}

func sites(t *testing.T, c *client.Client) string {
	t.Helper()
	var ids []string
	for s, err := range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(s.ID))
	}
	return strings.Join(ids, " ")
}

func (p *publisher) until(what string, holds func() bool) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Log(p.c.Kubectl(p.t, "get", "gitops,events", "-A", "-o", "yaml"))
		}
	}()
	eventually.Within(p.t, timeLimit, what, func() error {
		if !holds() {
			return errors.New("the condition is false")
		}
		return nil
	})
}

const readyOf = `jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].reason} {.status.lastAppliedRevision}`

func TestFluxSourcesAreApplied(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t, kube.Options{})
	crd, err := os.ReadFile("../../deploy/kubernetes/components/gitops/crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fluxtest.Install(t, c)
	c.Apply(t, string(crd))
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout="+timeLimit.String(), "crd", "--all")
	p := publish(t, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, _ := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	certificate, key := c.ServingCertificate(t)
	server := process.StartServer(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"), "--flux-kubeconfig="+c.Kubeconfig, "--retry=100ms", "--retry-max=1s",
		"--remote-addresses=127.0.0.0/8", // the addresses of the artifacts
		"--events-addr="+p.web.URL+"/", "--kubernetes=localhost:"+strconv.Itoa(address.Port), "--kubernetes-cert="+certificate, "--kubernetes-key="+key, "--kubernetes-kubeconfig="+c.Kubeconfig)
	// The aggregated API has v1alpha1 of the group, and the CRD another version.
	c.RegisterAPIService(t, "tko.nephio.org", "v1alpha1", address.Port, c.CA())
	t.Cleanup(func() { c.UnregisterAPIService(t, "tko.nephio.org", "v1alpha1") })
	data, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }()

	c.Apply(t, gitRepository("fleet")+"---\n"+gitRepository("other")+"---\n"+gitOps("fleet", "GitRepository", "fleet", ""))
	c.Eventually(t, "Unknown Progressing", "get", "gitops", "fleet", "-o", readyOf) // there is no artifact yet
	first := p.push("gitrepository", "fleet", archive(t, map[string]string{"a.yaml": aSite("a"), "b.yaml": aSite("b")}))
	c.Eventually(t, "True ReconciliationSucceeded "+first, "get", "gitops", "fleet", "-o", readyOf)
	if got := sites(t, data); got != "a b" {
		t.Errorf("the sites are %q, want a b", got)
	}
	if got := c.Kubectl(t, "get", "sites.tko.nephio.org", "-o", "jsonpath={.items[*].metadata.name}"); got != "a b" {
		t.Errorf("the aggregated API next to the CRD has the sites %q, want a b", got)
	}
	c.Eventually(t, "1 2 site a", "get", "gitops", "fleet", "-o", "jsonpath={.status.observedGeneration} {.status.inventory.count} {.status.inventory.entries[0].kind} {.status.inventory.entries[0].name}")
	c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=10s", "gitops/fleet")
	c.Eventually(t, "ReconciliationSucceeded", "get", "events", "--field-selector=involvedObject.kind=GitOps,involvedObject.name=fleet,type=Normal", "-o", "jsonpath={.items[0].reason}")
	p.until("an event for notification-controller", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.ContainsFunc(p.events, func(e map[string]any) bool {
			metadata, _ := e["metadata"].(map[string]any)
			return e["severity"] == "info" && metadata["tko.nephio.org/revision"] == first
		})
	})

	// A GitRepository without a GitOps object, and not for OSM, is no failure.
	other := p.push("gitrepository", "other", archive(t, map[string]string{"a.yaml": aSite("unused")}))
	p.until("the repository is skipped", func() bool {
		s, err := data.Source(t.Context(), "gitrepository/default/other")
		return err == nil && s.Status.Applied == other && s.Status.Conditions[0].Reason == "NothingForUs"
	})

	// A new revision changes entities, and deletes those that it lacks.
	second := p.push("gitrepository", "fleet", archive(t, map[string]string{"a.yaml": aSite("a"), "c.yaml": aSite("c")}))
	c.Eventually(t, "True ReconciliationSucceeded "+second, "get", "gitops", "fleet", "-o", readyOf)
	if got := sites(t, data); got != "a c" {
		t.Errorf("the sites are %q, want a c", got)
	}

	// An artifact with a wrong digest, with a path that leads out, or that is gone,
	// is not used.
	evil := archive(t, map[string]string{"a.yaml": aSite("evil")})
	p.push("gitrepository", "fleet", evil, func(a map[string]any) { a["digest"] = "sha256:" + strings.Repeat("0", 64) })
	c.Eventually(t, "False ArtifactFailed "+second, "get", "gitops", "fleet", "-o", readyOf)
	p.push("gitrepository", "fleet", archive(t, map[string]string{"../../a.yaml": aSite("evil")}))
	c.Eventually(t, "True", "get", "gitops", "fleet", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].status}`)
	p.push("gitrepository", "fleet", archive(t, map[string]string{"gone.yaml": aSite("evil")}), func(a map[string]any) { a["url"] = p.web.URL + "/collected.tar.gz" })
	third := p.push("gitrepository", "fleet", archive(t, map[string]string{"a.yaml": aSite("a"), "x/d.yaml": aSite("d")}, tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}))
	c.Eventually(t, "True ReconciliationSucceeded "+third, "get", "gitops", "fleet", "-o", readyOf)
	if got := sites(t, data); got != "a d" {
		t.Errorf("the sites are %q, want a d", got)
	}

	// A requested reconciliation is acknowledged; a change of the spec takes effect.
	if _, err := data.RegisterSite(t.Context(), tko.Site{ID: "a", Metadata: map[string]string{"drifted": "yes"}}); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "annotate", "gitops", "fleet", "reconcile.fluxcd.io/requestedAt=2026-01-02T03:04:05Z")
	c.Eventually(t, "2026-01-02T03:04:05Z", "get", "gitops", "fleet", "-o", "jsonpath={.status.lastHandledReconcileAt}")
	p.until("the drift is repaired", func() bool {
		s, err := data.Site(t.Context(), "a", 0)
		return err == nil && s.Metadata["drifted"] == ""
	})
	c.Kubectl(t, "patch", "gitops", "fleet", "--type=merge", "-p", `{"spec":{"path":"x"}}`)
	c.Eventually(t, "2 True", "get", "gitops", "fleet", "-o", `jsonpath={.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status}`)
	if got := sites(t, data); got != "d" {
		t.Errorf("with path x, the sites are %q, want d", got)
	}

	// Other kinds of sources, and dependencies.
	c.Apply(t, "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: oci, namespace: default}\nspec: {interval: 1m, url: 'oci://example.com/x'}\n---\n"+
		gitOps("oci", "OCIRepository", "oci", "  dependsOn: [{name: fleet}]\n  deletionPolicy: Orphan\n"))
	fourth := p.push("ocirepository", "oci", archive(t, map[string]string{"o.yaml": aSite("o")}))
	c.Eventually(t, "True ReconciliationSucceeded "+fourth, "get", "gitops", "oci", "-o", readyOf)

	// A deleted object deletes its entities, unless it is configured otherwise; also
	// while the controller was stopped.
	c.Kubectl(t, "delete", "gitops", "fleet", "--timeout="+timeLimit.String())
	c.Kubectl(t, "delete", "gitops", "oci", "--timeout="+timeLimit.String())
	if got := sites(t, data); got != "o" {
		t.Errorf("after the deletion of the objects, the sites are %q, want o", got)
	}
	if s, err := data.Source(t.Context(), "default/fleet"); err == nil {
		t.Errorf("the source still exists: %+v", s)
	}
}
