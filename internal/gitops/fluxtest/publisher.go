package fluxtest

import (
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
)

//go:embed crds/*.yaml
var crds embed.FS

// Install installs the CRDs of Flux's kinds in a cluster.
func Install(t testing.TB, c *kube.Cluster) {
	t.Helper()
	files, err := fs.Glob(crds, "crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := crds.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, string(text))
		plural, _, _ := strings.Cut(strings.TrimPrefix(path.Base(name), "source.toolkit.fluxcd.io_"), ".")
		c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=4m", "crd/"+plural+".source.toolkit.fluxcd.io")
	}
}

// Retained is the number of served artifacts of a source, including the newest.
const Retained = 2

// A Publisher serves artifacts. It is safe for concurrent use.
type Publisher struct {
	client *dynamic.DynamicClient
	server *httptest.Server

	mu        sync.Mutex
	retained  map[string][]string // paths by directory, the newest first
	artifacts map[string][]byte
	requests  map[string]int // by path
	broken    map[string]int // HTTP status of responses, by directory
}

// Start starts a Publisher for a cluster that has Flux's kinds, until the test
// ends.
func Start(t testing.TB, c *kube.Cluster) *Publisher {
	t.Helper()
	client, err := dynamic.NewForConfig(kubetest.Config(c))
	if err != nil {
		t.Fatal(err)
	}
	p := &Publisher{client: client, retained: map[string][]string{}, artifacts: map[string][]byte{}, requests: map[string]int{}, broken: map[string]int{}}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	return p
}

func (p *Publisher) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests[r.URL.Path]++
	data, ok := p.artifacts[r.URL.Path]
	status := p.broken[path.Dir(r.URL.Path)]
	p.mu.Unlock()
	switch {
	case status != 0:
		w.WriteHeader(status)
	case !ok:
		http.NotFound(w, r)
	default:
		_, _ = w.Write(data)
	}
}

// A Source names an object of Flux.
type Source struct{ Kind, Namespace, Name string }

func (s Source) folder() string {
	return "/" + path.Join(strings.ToLower(s.Kind), s.Namespace, s.Name)
}

func (s Source) resource() schema.GroupVersionResource {
	plural := map[string]string{"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets", "ExternalArtifact": "externalartifacts"}
	return schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: plural[s.Kind]}
}

// An Artifact is the artifact in the status of a Flux object.
type Artifact struct {
	URL            string            `json:"url"`
	Path           string            `json:"path"`
	Revision       string            `json:"revision"`
	Digest         string            `json:"digest"`
	LastUpdateTime string            `json:"lastUpdateTime"`
	Size           int               `json:"size"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// Create creates the object of a source, without a status, if there is none.
func (p *Publisher) Create(t testing.TB, s Source) {
	t.Helper()
	specs := map[string]map[string]any{
		"GitRepository":    {"interval": "1m", "url": "https://git.example.com/fleet.git", "ref": map[string]any{"branch": "main"}},
		"OCIRepository":    {"interval": "1m", "url": "oci://registry.example.com/fleet"},
		"Bucket":           {"interval": "1m", "bucketName": "fleet", "endpoint": "s3.example.com"},
		"ExternalArtifact": {},
	}
	_, err := p.client.Resource(s.resource()).Namespace(s.Namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": s.Kind, "metadata": map[string]any{"name": s.Name, "namespace": s.Namespace}, "spec": specs[s.Kind],
	}}, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// Delete deletes the object of a source, if there is one.
func (p *Publisher) Delete(t testing.TB, s Source) {
	t.Helper()
	if err := p.client.Resource(s.resource()).Namespace(s.Namespace).Delete(t.Context(), s.Name, meta.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// Publish makes the newest commit of a repository the artifact of a source, and
// returns the artifact in the source's status.
func (p *Publisher) Publish(t testing.TB, s Source, r *Repository) Artifact {
	t.Helper()
	commit := r.Head()
	return p.Offer(t, s, "main@sha1:"+commit, r.Archive(commit), nil)
}

// Offer makes an archive the artifact of a source. metadata holds OCI annotations.
func (p *Publisher) Offer(t testing.TB, s Source, revision string, archive []byte, metadata map[string]string) Artifact {
	t.Helper()
	a := p.Retain(s, revision, archive)
	a.Metadata = metadata
	p.SetCondition(t, s, a)
	return a
}

// Retain serves an archive, and stops serving archives that are too old. The
// source's status doesn't change.
func (p *Publisher) Retain(s Source, revision string, archive []byte) Artifact {
	sum := sha256.Sum256(archive)
	_, hash, _ := strings.Cut(revision, ":")
	file := path.Join(s.folder(), hash+".tar.gz")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.artifacts[file] = archive
	all := slices.DeleteFunc(p.retained[s.folder()], func(other string) bool { return other == file })
	all = slices.Insert(all, 0, file)
	for _, old := range all[min(Retained, len(all)):] {
		delete(p.artifacts, old)
	}
	p.retained[s.folder()] = all[:min(Retained, len(all))]
	return Artifact{
		URL: p.server.URL + file, Path: strings.TrimPrefix(file, "/"), Revision: revision, Digest: fmt.Sprintf("sha256:%x", sum),
		LastUpdateTime: time.Now().UTC().Format(time.RFC3339), Size: len(archive),
	}
}

// SetCondition sets the status of a source to ready, with an artifact.
func (p *Publisher) SetCondition(t testing.TB, s Source, a Artifact) {
	t.Helper()
	p.Create(t, s)
	p.status(t, s, map[string]any{"artifact": a, "conditions": []any{ready("True", "Succeeded", "stored artifact for revision "+a.Revision)}})
}

// Fail sets the status of a source to not ready. The artifact stays.
func (p *Publisher) Fail(t testing.TB, s Source, message string) {
	t.Helper()
	p.Create(t, s)
	p.status(t, s, map[string]any{"conditions": []any{ready("False", "GitOperationFailed", message)}})
}

// Break makes requests for artifacts of a source fail with an HTTP status; 0 ends
// that.
func (p *Publisher) Break(s Source, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken[s.folder()] = status
}

// Requests returns the number of requests for artifacts of a source.
func (p *Publisher) Requests(s Source) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for file, count := range p.requests {
		if path.Dir(file) == s.folder() {
			n += count
		}
	}
	return n
}

func ready(status, reason, message string) map[string]any {
	return map[string]any{
		"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": 1,
	}
}

func (p *Publisher) status(t testing.TB, s Source, status map[string]any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Resource(s.resource()).Namespace(s.Namespace).Patch(t.Context(), s.Name, types.MergePatchType, data, meta.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}
