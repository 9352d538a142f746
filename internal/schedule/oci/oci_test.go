package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/oci"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/krm"
)

// A hub is an OCI registry. It notes the requests that write.
type hub struct {
	host string

	mu     sync.Mutex
	writes []string
	before func(r *http.Request) (status int) // called before each request; 0 to go on
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.writes = append(h.writes, r.Method+" "+r.URL.Path)
		}
		before := h.before
		h.mu.Unlock()
		if before != nil {
			if status := before(r); status != 0 {
				http.Error(w, `{"errors": [{"code": "DENIED", "message": "the-secret-of-a-service"}]}`, status)
				return
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.host = strings.TrimPrefix(server.URL, "http://")
	return h
}

func (h *hub) hook(before func(r *http.Request) int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = before
}

// written returns the number of requests that wrote since the last call.
func (h *hub) written() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.writes)
	h.writes = nil
	return n
}

func (h *hub) repository(t *testing.T, name string) *remote.Repository {
	t.Helper()
	r, err := remote.NewRepository(h.host + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	r.PlainHTTP = true
	return r
}

// digest returns the digest at a tag, "" if there is none.
func (h *hub) digest(t *testing.T, name string) string {
	t.Helper()
	found, err := h.repository(t, name).Resolve(t.Context(), "latest")
	if err != nil && !errors.Is(err, errdef.ErrNotFound) {
		t.Fatal(err)
	}
	return string(found.Digest)
}

// A pulled artifact is one as a tool sees it.
type pulled struct {
	manifest ocispec.Manifest
	files    map[string]string
}

// pull reads all of an artifact, which must be complete.
func (h *hub) pull(t *testing.T, name string) (p pulled) {
	t.Helper()
	r := h.repository(t, name)
	_, text, err := oras.FetchBytes(t.Context(), r, "latest", oras.DefaultFetchBytesOptions)
	if err == nil {
		err = json.Unmarshal(text, &p.manifest)
	}
	if err != nil || len(p.manifest.Layers) != 1 {
		t.Fatal(err, p.manifest)
	}
	if _, err := content.FetchAll(t.Context(), r.Blobs(), p.manifest.Config); err != nil {
		t.Fatal(err)
	}
	layer, err := content.FetchAll(t.Context(), r.Blobs(), p.manifest.Layers[0])
	if err != nil {
		t.Fatal(err)
	}
	p.files = untar(t, layer)
	return p
}

func untar(t *testing.T, layer []byte) map[string]string {
	t.Helper()
	opened, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	all, folders := map[string]string{}, map[string]bool{"": true}
	for archive := tar.NewReader(opened); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s has a time or an owner", header.Name)
		}
		if parent := header.Name[:strings.LastIndex(strings.TrimSuffix(header.Name, "/"), "/")+1]; !folders[parent] {
			t.Errorf("%s comes before its folder", header.Name)
		}
		if header.Typeflag == tar.TypeDir {
			folders[header.Name] = true
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(data)
	}
}

func (h *hub) artifact(fields ...any) krm.Resource {
	r := krm.Resource{"apiVersion": oci.GVK.APIVersion(), "kind": oci.GVK.Kind, "metadata": map[string]any{"name": "main"}}
	r.Set("oci://"+h.host+"/fleet", "spec", "url")
	for i := 0; i < len(fields); i += 2 {
		r.Set(fields[i+1], "spec", fields[i].(string))
	}
	return r
}

func configMap(name, value string) krm.Resource {
	return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "ns"}, "data": map[string]any{"value": value}}
}

func deployment(id tko.DeploymentID, revision int64, all ...krm.Resource) tko.Deployment {
	return tko.Deployment{ID: id, Package: all, Stamp: tko.Stamp{Revision: revision, Updated: time.Date(2026, 3, 4, 5, 6, int(revision), 0, time.UTC)}}
}

var lagos = tko.Site{ID: "lagos"}

func schedule(t *testing.T, target *oci.Target, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held ...tko.DeploymentID) []tko.DeploymentID {
	t.Helper()
	removed, err := target.Schedule(t.Context(), trigger, site, deployments, held...)
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func TestSiteIsPublishedAsAnArtifact(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	trigger := h.artifact()
	if schedule(t, target, trigger, lagos, nil); h.written() > 0 || h.digest(t, "fleet/lagos") != "" {
		t.Error("something was published for a site without deployments")
	}
	one := configMap("one", "1")
	one.Set("true", "metadata", "annotations", "nephio.org/prepared")
	namespace := krm.Resource{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ns"}}
	intent := krm.Resource{"apiVersion": "topology.nephio.org/v1alpha1", "kind": "Site", "metadata": map[string]any{"name": "x"}}
	a, b := deployment("a", 3, one, namespace, intent), deployment("b", 7, configMap("two", "2"), one)
	schedule(t, target, trigger, lagos, []tko.Deployment{a, b})
	first := h.pull(t, "fleet/lagos")
	want := map[string]string{
		"a/00-cluster/Namespace.v1_ns.yaml":        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ns\n",
		"a/10-namespaced/ns/ConfigMap.v1_one.yaml": "apiVersion: v1\ndata:\n  value: \"1\"\nkind: ConfigMap\nmetadata:\n  name: one\n  namespace: ns\n",
		"b/10-namespaced/ns/ConfigMap.v1_two.yaml": "apiVersion: v1\ndata:\n  value: \"2\"\nkind: ConfigMap\nmetadata:\n  name: two\n  namespace: ns\n",
	}
	if diff := cmp.Diff(want, first.files); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	m := first.manifest
	if m.Config.MediaType != "application/vnd.cncf.flux.config.v1+json" || m.Layers[0].MediaType != oci.FluxLayer || m.MediaType != ocispec.MediaTypeImageManifest {
		t.Errorf("media types %+v", m)
	}
	if m.Annotations[ocispec.AnnotationCreated] != "2026-03-04T05:06:07Z" || !strings.HasPrefix(m.Annotations[ocispec.AnnotationRevision], "sha256:") || m.Annotations["tko.nephio.org/site"] != "lagos" {
		t.Errorf("annotations %v", m.Annotations)
	}
	h.written()
	digest := h.digest(t, "fleet/lagos")
	a.Stamp.Revision = 4 // nothing of it is for the site
	if schedule(t, oci.New(oci.Options{}), trigger, lagos, []tko.Deployment{a, b}); h.written() > 0 || h.digest(t, "fleet/lagos") != digest {
		t.Error("an unchanged site was published again")
	}
	if removed := schedule(t, target, trigger, lagos, []tko.Deployment{b}); !slices.Equal(removed, []tko.DeploymentID{"a"}) {
		t.Errorf("removed %v", removed)
	}
	if got := h.pull(t, "fleet/lagos").files; len(got) != 2 || got["b/10-namespaced/ns/ConfigMap.v1_one.yaml"] == "" {
		t.Errorf("without the deployment that had the shared object: %v", got)
	}
	schedule(t, target, h.artifact("repository", "other/x", "tag", "latest", "mediaType", oci.ImageLayer), lagos, []tko.Deployment{b})
	if got := h.pull(t, "fleet/other/x"); got.manifest.Layers[0].MediaType != oci.ImageLayer {
		t.Errorf("the layer has the type %s", got.manifest.Layers[0].MediaType)
	}
}

// The last deployment leaves an artifact, from which Flux builds nothing: without an artifact,
// its objects would stay in the cluster.
func TestSiteWithoutDeploymentsHasAnArtifactWithoutObjects(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{deployment("a", 1, configMap("one", "1"))})
	if removed := schedule(t, target, h.artifact(), lagos, nil); !slices.Equal(removed, []tko.DeploymentID{"a"}) {
		t.Errorf("removed %v", removed)
	}
	disk := filesys.MakeFsInMemory()
	for name, text := range h.pull(t, "fleet/lagos").files {
		if err := disk.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(disk, ".")
	if err != nil || built.Size() != 0 {
		t.Errorf("kustomize builds %v, %v", built, err)
	}
	h.written()
	schedule(t, target, h.artifact(), lagos, nil)
	if n := h.written(); n > 0 {
		t.Errorf("%d requests wrote the same again", n)
	}
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{deployment("a", 1, configMap("one", "1"))}, tko.OtherDeployments)
	if got := h.pull(t, "fleet/lagos").files; len(got) != 1 || got["kustomization.yaml"] != "" {
		t.Errorf("after the first deployment came back: %v", got)
	}
}

func TestSameContentsHaveTheSameDigest(t *testing.T) {
	t.Parallel()
	var digests []string
	for range 3 {
		h := newHub(t)
		var all []tko.Deployment
		for _, id := range []tko.DeploymentID{"a", "b", "c"} {
			all = append(all, deployment(id, 1, configMap(string(id), "1"), configMap("x"+string(id), "2")))
		}
		schedule(t, oci.New(oci.Options{}), h.artifact(), lagos, all)
		digests = append(digests, h.digest(t, "fleet/lagos"))
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("got %v", digests)
	}
}

// A push that fails at any of its requests leaves the former artifact, and the next one completes.
func TestFailedPushIsRepeated(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{deployment("a", 1, configMap("one", "0"))})
	h.written()
	failures := 0
	for step := 1; ; step++ {
		was, seen := h.digest(t, "fleet/lagos"), 0
		now := []tko.Deployment{deployment("a", int64(step), configMap("one", strings.Repeat("x", step)))}
		h.hook(func(r *http.Request) int {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				seen++
				if seen >= step {
					return http.StatusInsufficientStorage
				}
			}
			return 0
		})
		_, err := target.Schedule(t.Context(), h.artifact(), lagos, now)
		h.hook(nil)
		if err == nil {
			break
		}
		failures++
		if errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrConflict) || strings.Contains(err.Error(), "the-secret") {
			t.Errorf("step %d: %v", step, err)
		}
		if got := h.digest(t, "fleet/lagos"); got != was {
			t.Errorf("step %d: the tag was moved to %s", step, got)
		}
		schedule(t, target, h.artifact(), lagos, now)
		if got := h.pull(t, "fleet/lagos").files["a/10-namespaced/ns/ConfigMap.v1_one.yaml"]; !strings.Contains(got, strings.Repeat("x", step)) {
			t.Errorf("step %d: got %s", step, got)
		}
	}
	if failures < 3 {
		t.Errorf("only %d requests failed", failures)
	}
}

// A stop holds a site before anything is pushed, and also between the blobs and the tag.
func TestStopHoldsThePush(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	all := []tko.Deployment{deployment("a", 1, configMap("one", "1"))}
	closed := fence.NewError(tko.Errorf(tko.ErrStopped, "stopped"))
	for open, writes := range map[int]bool{0: false, 1: true} {
		asked := 0
		ctx := fence.With(t.Context(), func(context.Context) error {
			asked++
			if asked > open {
				return closed
			}
			return nil
		})
		if _, err := target.Schedule(ctx, h.artifact(), lagos, all); !fence.Is(err) || !errors.Is(err, tko.ErrStopped) {
			t.Errorf("open %d times: %v", open, err)
		}
		if got := h.digest(t, "fleet/lagos"); got != "" || (h.written() > 0) != writes {
			t.Errorf("open %d times: the tag has %q, or blobs were pushed", open, got)
		}
	}
	schedule(t, target, h.artifact(), lagos, all)
	asked := false
	ctx := fence.With(t.Context(), func(context.Context) error { asked = true; return closed })
	if _, err := target.Schedule(ctx, h.artifact(), lagos, all); err != nil || asked {
		t.Errorf("an unchanged site asked the fence: %v", err)
	}
}

// push publishes a foreign artifact.
func (h *hub) push(t *testing.T, name string, annotations map[string]string) string {
	t.Helper()
	r := h.repository(t, name)
	found, err := oras.PackManifest(t.Context(), r, oras.PackManifestVersion1_1, "application/x.other", oras.PackManifestOptions{ManifestAnnotations: annotations})
	if err == nil {
		err = r.Tag(t.Context(), found, "latest")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(found.Digest)
}

// Artifacts of others are never replaced; an artifact of the site itself to which another
// writer moved the tag is.
func TestForeignArtifactsAreAConflict(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	v1, v2 := []tko.Deployment{deployment("a", 1, configMap("one", "1"))}, []tko.Deployment{deployment("a", 2, configMap("one", "2"))}
	conflict := func(why string, trigger krm.Resource, site tko.Site, name, digest string) {
		t.Helper()
		h.written()
		_, err := target.Schedule(t.Context(), trigger, site, v1)
		if !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", why, err)
		}
		if h.digest(t, name) != digest || h.written() > 0 {
			t.Errorf("%s: it was replaced", why)
		}
	}
	conflict("of another tool", h.artifact(), lagos, "fleet/lagos", h.push(t, "fleet/lagos", nil))
	conflict("one that says it is of the site", h.artifact(), lagos, "fleet/lagos", h.push(t, "fleet/lagos", map[string]string{"tko.nephio.org/site": "lagos"}))
	shared := h.artifact("repository", "shared")
	schedule(t, target, shared, lagos, v1)
	conflict("of another site", shared, tko.Site{ID: "accra"}, "fleet/shared", h.digest(t, "fleet/shared"))

	first, err := h.repository(t, "fleet/shared").Resolve(t.Context(), "latest")
	if err != nil {
		t.Fatal(err)
	}
	schedule(t, target, shared, lagos, v2)
	second := h.digest(t, "fleet/shared")
	if err := h.repository(t, "fleet/shared").Tag(t.Context(), first, "latest"); err != nil {
		t.Fatal(err)
	}
	if schedule(t, target, shared, lagos, v2); h.digest(t, "fleet/shared") != second {
		t.Error("the tag stays where it was moved to")
	}

	// Another layer with TKO's configuration is replaced, too.
	r, layer := h.repository(t, "fleet/shared"), archive(t, "x.yaml", "kind: Other")
	other := content.NewDescriptorFromBytes(oci.FluxLayer, layer)
	m := h.pull(t, "fleet/shared").manifest
	m.Layers = []ocispec.Descriptor{other}
	text, err := json.Marshal(m)
	if err == nil {
		err = r.Push(t.Context(), other, bytes.NewReader(layer))
	}
	if err == nil {
		_, err = oras.TagBytes(t.Context(), r, ocispec.MediaTypeImageManifest, text, "latest")
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := target.Compare(t.Context(), shared, lagos, v2, nil)
	if err != nil || len(found.Changes) != 2 || found.Changes[1].Object != "x.yaml" || found.Changes[1].Verb != tko.SiteRemove {
		t.Errorf("a comparison finds %+v, %v", found, err)
	}
	if schedule(t, target, shared, lagos, v2); h.digest(t, "fleet/shared") != second {
		t.Error("the layer of another writer stays")
	}
}

// archive makes a layer with one file.
func archive(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A writer that moves the tag while blobs are pushed isn't overwritten.
func TestTagThatMovesMeanwhileIsReadAgain(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{deployment("a", 1, configMap("one", "1"))})
	foreign := ""
	var once sync.Once
	h.hook(func(r *http.Request) int {
		if r.Method == http.MethodPost {
			once.Do(func() {
				h.hook(nil)
				foreign = h.push(t, "fleet/lagos", nil)
			})
		}
		return 0
	})
	_, err := target.Schedule(t.Context(), h.artifact(), lagos, []tko.Deployment{deployment("a", 2, configMap("one", "2"))})
	if !errors.Is(err, tko.ErrConflict) || h.digest(t, "fleet/lagos") != foreign || foreign == "" {
		t.Errorf("got %v, and the tag has %s, want %s", err, h.digest(t, "fleet/lagos"), foreign)
	}
}

func TestHeldDeploymentsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	a, b, c := deployment("a", 1, configMap("one", "1"), configMap("same", "s")), deployment("b", 1, configMap("two", "1"), configMap("same", "s")), deployment("c", 1, configMap("three", "1"))
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{a, b, c})
	was := h.pull(t, "fleet/lagos").files
	b2 := deployment("b", 2, configMap("two", "2"), configMap("same", "s"))
	if removed := schedule(t, target, h.artifact(), lagos, []tko.Deployment{b2}, "a", "never"); !slices.Equal(removed, []tko.DeploymentID{"c"}) {
		t.Errorf("removed %v", removed)
	}
	now := h.pull(t, "fleet/lagos").files
	for name, text := range was {
		switch {
		case strings.HasPrefix(name, "a/"):
			if now[name] != text {
				t.Errorf("%s changed: %q", name, now[name])
			}
		case strings.HasPrefix(name, "c/") && now[name] != "":
			t.Errorf("%s stays", name)
		}
	}
	if len(now) != 3 || !strings.Contains(now["b/10-namespaced/ns/ConfigMap.v1_two.yaml"], `"2"`) {
		t.Errorf("got %v", now)
	}
	digest := h.digest(t, "fleet/lagos")
	if removed := schedule(t, target, h.artifact(), lagos, nil, tko.OtherDeployments); len(removed) > 0 || h.digest(t, "fleet/lagos") != digest {
		t.Errorf("all others are held, and %v was removed", removed)
	}
}

// What a tool has applied is known by the contents of its artifact.
func TestContentsOfArtifactsAreKnown(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	deliver := func(all ...tko.Deployment) puller.Delivery {
		d, err := target.Deliver(t.Context(), h.artifact(), lagos, all)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a1, a2, b := deployment("a", 1, configMap("one", "1")), deployment("a", 2, configMap("one", "2")), deployment("b", 4, configMap("b", "1"))
	foreign := h.push(t, "fleet/other", nil)
	deliver(a1, b)
	first := h.digest(t, "fleet/lagos")
	d := deliver(a2, b)
	second := h.digest(t, "fleet/lagos")
	same := func(revision int64) puller.Content { return puller.Content{Presence: puller.Same, Revision: revision} }
	for revision, want := range map[string][2]puller.Content{
		"latest@" + second: {same(2), same(4)}, second: {same(2), same(4)},
		"latest@" + first: {{Presence: puller.Earlier, Revision: 1}, same(4)},
		foreign:           {}, "main@sha1:" + strings.Repeat("1", 40): {}, "": {},
	} {
		contents, err := d.In(t.Context(), []string{revision, revision})
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]puller.Content{contents.Best("a", []string{revision}), contents.Best("b", []string{revision})}; got != want {
			t.Errorf("%s: got %v, want %v", revision, got, want)
		}
	}
	h.hook(func(*http.Request) int { return http.StatusBadGateway })
	if contents, err := d.In(t.Context(), []string{second}); err != nil || contents.Best("a", []string{second}) != same(2) {
		t.Errorf("the newest artifact needs no registry: %v", err)
	}
	if _, err := d.In(t.Context(), []string{first}); err == nil {
		t.Error("what an unreachable registry has is known")
	}
}

func TestArtifactIsComparedFileByFile(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	a, b := deployment("a", 1, configMap("one", "1"), configMap("gone", "1")), deployment("b", 1, configMap("two", "1"))
	compare := func(all ...tko.Deployment) []tko.SiteChange {
		t.Helper()
		found, err := target.Compare(t.Context(), h.artifact(), lagos, all, nil)
		if err != nil || len(found.Orphans) > 0 {
			t.Fatal(found, err)
		}
		return found.Changes
	}
	if got := compare(b); len(got) != 1 || got[0].Verb != tko.SiteCreate {
		t.Errorf("before the first artifact: %+v", got)
	}
	schedule(t, target, h.artifact(), lagos, []tko.Deployment{a, b})
	h.written()
	if got := compare(a, b); len(got) > 0 {
		t.Errorf("an unchanged site differs: %+v", got)
	}
	want := []tko.SiteChange{
		{Verb: tko.SiteRemove, Object: "b", Deployment: "b"},
		{Verb: tko.SiteRemove, Object: "a/10-namespaced/ns/ConfigMap.v1_gone.yaml", Deployment: "a"},
		{Verb: tko.SiteCreate, Object: "a/10-namespaced/ns/ConfigMap.v1_new.yaml", Deployment: "a"},
		{Verb: tko.SiteUpdate, Object: "a/10-namespaced/ns/ConfigMap.v1_one.yaml", Deployment: "a", Details: []string{`data.value: "1" → "2"`}},
	}
	if diff := cmp.Diff(want, compare(deployment("a", 2, configMap("one", "2"), configMap("new", "1")))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if h.written() > 0 {
		t.Error("a comparison wrote")
	}
}
