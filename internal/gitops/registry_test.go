package gitops_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	remoteoci "oras.land/oras-go/v2/registry/remote"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/catalog"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

// A hub is an OCI registry.
type hub struct {
	t        *testing.T
	host     string
	requests atomic.Int64
	blobs    atomic.Int64
	away     atomic.Bool
}

func newHub(t *testing.T) *hub {
	t.Helper()
	h := &hub{t: t}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.requests.Add(1)
		if strings.Contains(r.URL.Path, "/blobs/") {
			h.blobs.Add(1)
		}
		if h.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.host = strings.TrimPrefix(server.URL, "http://")
	return h
}

// push publishes layers under a tag, and returns the digest.
func (h *hub) push(repository, tag, configType string, layers ...ocispec.Descriptor) string {
	h.t.Helper()
	ctx := h.t.Context()
	r := h.repository(repository)
	config := content.NewDescriptorFromBytes(configType, []byte("{}"))
	if err := r.Push(ctx, config, strings.NewReader("{}")); err != nil {
		h.t.Fatal(err)
	}
	for i := range layers {
		data := layers[i].Data
		layers[i].Data = nil
		if err := r.Push(ctx, layers[i], bytes.NewReader(data)); err != nil {
			h.t.Fatal(err)
		}
	}
	found, err := oras.PackManifest(ctx, r, oras.PackManifestVersion1_0, configType, oras.PackManifestOptions{Layers: layers, ConfigDescriptor: &config})
	if err == nil {
		err = r.Tag(ctx, found, tag)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return string(found.Digest)
}

func (h *hub) repository(name string) *remoteoci.Repository {
	h.t.Helper()
	r, err := remoteoci.NewRepository(h.host + "/" + name)
	if err != nil {
		h.t.Fatal(err)
	}
	r.PlainHTTP = true
	return r
}

func layer(mediaType string, data []byte, annotations map[string]string) ocispec.Descriptor {
	d := content.NewDescriptorFromBytes(mediaType, data)
	d.Data, d.Annotations = data, annotations
	return d
}

func archived(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
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

const (
	fluxConfig = "application/vnd.cncf.flux.config.v1+json"
	fluxLayer  = "application/vnd.cncf.flux.content.v1.tar+gzip"
	helmConfig = "application/vnd.cncf.helm.config.v1+json"
	helmLayer  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// flux publishes a ConfigMap with a value, as flux push artifact does.
func (h *hub) flux(repository, tag, value string) string {
	return h.push(repository, tag, fluxConfig, layer(fluxLayer, archived(h.t, map[string]string{"./c.yaml": configMap(value)}), nil))
}

func chart(t *testing.T, name string) []byte {
	return archived(t, map[string]string{
		name + "/Chart.yaml": "name: " + name + "\n", name + "/values.schema.json": "{\n  \"type\": \"object\"\n}\n", name + "/templates/c.yaml": "x: {{ .Values.x }}\n",
	})
}

// consistent returns the condition Consistent of a source; it is empty if there is none.
func consistent(s tko.Source) tko.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == tko.ConditionConsistent {
			return c
		}
	}
	return tko.Condition{}
}

// value returns the value of the ConfigMap of a template.
func (w *world) value(id tko.TemplateID) string {
	w.Helper()
	found, err := w.Template(w.Context(), id, 0)
	if err != nil {
		w.Fatal(err)
	}
	if len(found.Package) != 1 {
		w.Fatalf("template %q has the package %v: want one resource", id, found.Package)
	}
	return found.Package[0].Text("data", "v")
}

// A catalog registers artifacts of a registry, as Flux, ORAS and Helm publish them. What
// is invalid is left out, and stops nothing else. A tag that was moved changes nothing.
func TestCatalogRegistersArtifactsOfRegistries(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.flux("vendor/upf", "v1.0.0", "1")
	h.flux("vendor/upf", "v1.1.0", "2")
	h.push("vendor/amf", "1.0", "application/vnd.unknown.config.v1+json",
		layer("application/yaml", []byte(configMap("oras")), map[string]string{ocispec.AnnotationTitle: "c.yaml"}))
	h.push("vendor/charts/web", "2.0.0_build", helmConfig, layer(helmLayer, chart(t, "web"), nil))
	h.push("vendor/broken", "v1", fluxConfig, layer(fluxLayer, []byte("no archive"), nil))
	h.push("vendor/broken", "v2", fluxConfig, layer(fluxLayer, archived(t, map[string]string{"../../evil.yaml": "x: y"}), nil))
	settings := gitops.Settings{Name: "vendor", Catalog: &catalog.Settings{ID: "nf/{path}:{tag}", OCI: &catalog.OCISettings{
		URL: "oci://" + h.host + "/vendor", Repositories: []string{"upf", "amf", "charts/web", "broken", "missing"},
	}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("vendor", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue && len(s.Status.Items) == 4 })
	templates := []string{
		"template nf/amf:1.0 1 gitops:vendor", "template nf/charts/web:2.0.0_build 1 gitops:vendor", "template nf/upf:v1.0.0 1 gitops:vendor", "template nf/upf:v1.1.0 1 gitops:vendor",
	}
	if diff := cmp.Diff(templates, w.entities()); diff != "" {
		t.Fatal(diff)
	}
	for id, want := range map[tko.TemplateID]string{"nf/upf:v1.0.0": "1", "nf/upf:v1.1.0": "2", "nf/amf:1.0": "oras"} {
		if got := w.value(id); got != want {
			t.Errorf("template %q has the value %q: want %q", id, got, want)
		}
	}
	web, err := w.Template(t.Context(), "nf/charts/web:2.0.0_build", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := web.Package[0]
	if r.Text("spec", "chart") != "oci://"+h.host+"/vendor/charts/web" || r.Text("spec", "version") != "2.0.0+build" || r.Text("metadata", "annotations", catalog.AnnotationSchema) != `{"type":"object"}` {
		t.Errorf("the chart's resource is %v", r)
	}
	left := consistent(s)
	for _, want := range []string{"broken:v1 is left out: a layer is not", "broken:v2 is left out", "leads out", "missing is left out: the registry doesn't have it"} {
		if left.Status != tko.ConditionFalse || !strings.Contains(left.Message, want) {
			t.Errorf("the condition is %q %q: want %q", left.Status, left.Message, want)
		}
	}
	// What is known isn't read again, and a tag that was moved changes no template.
	before := h.blobs.Load()
	h.flux("vendor/upf", "v1.1.0", "moved")
	pushed := h.blobs.Load()
	w.settle("vendor")
	w.until("vendor", "noticed", func(s tko.Source) bool {
		return strings.Contains(consistent(s).Message, `template "nf/upf:v1.1.0" stays as it is`)
	})
	if diff := cmp.Diff(templates, w.entities()); diff != "" {
		t.Error(diff)
	}
	if n := h.blobs.Load() - pushed; n > 3 { // the moved one, and the two invalid ones
		t.Errorf("%d layers were read: want 3 at most (%d before)", n, before)
	}
	h.away.Store(true)
	w.refused("vendor", tko.SourceReasonFetchFailed, "502")
	if diff := cmp.Diff(templates, w.entities()); diff != "" {
		t.Error(diff)
	}
}

// sign stores a signature of a digest, as cosign does.
func (h *hub) sign(repository, digest string, key *ecdsa.PrivateKey, signed string) {
	h.t.Helper()
	payload := []byte(fmt.Sprintf(`{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, signed))
	sum := sha256.Sum256(payload)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		h.t.Fatal(err)
	}
	h.push(repository, strings.Replace(digest, ":", "-", 1)+".sig", "application/vnd.oci.image.config.v1+json",
		layer("application/vnd.dev.cosign.simplesigning.v1+json", payload, map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}))
}

// load publishes what was recorded of an artifact under a tag, and returns its digest.
func (h *hub) load(repository, tag, dir, file string) string {
	h.t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			h.t.Fatal(err)
		}
		return data
	}
	text := read(file)
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		h.t.Fatal(err)
	}
	r := h.repository(repository)
	for _, blob := range append(m.Layers, m.Config) {
		if err := r.Blobs().Push(h.t.Context(), blob, bytes.NewReader(read(blob.Digest.Encoded()))); err != nil {
			h.t.Fatal(err)
		}
	}
	found := content.NewDescriptorFromBytes(m.MediaType, text)
	if err := r.Manifests().PushReference(h.t.Context(), found, bytes.NewReader(text), tag); err != nil {
		h.t.Fatal(err)
	}
	return found.Digest.String()
}

// An artifact that cosign itself has signed (2.6.1, with a key pair, without a transparency
// log) becomes a template. Its signature is for no other artifact.
func TestCatalogAcceptsSignaturesOfCosign(t *testing.T) {
	t.Parallel()
	const recorded = "testdata/cosign"
	h := newHub(t)
	sig := func(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }
	signed := h.load("vendor/upf", "v1.0.0", recorded, "artifact.json")
	h.load("vendor/upf", sig(signed), recorded, "signature.json")
	h.load("vendor/upf", sig(h.flux("vendor/upf", "v2.0.0", "other")), recorded, "signature.json")
	settings := gitops.Settings{Name: "vendor", Catalog: &catalog.Settings{CosignKeyFile: filepath.Join(recorded, "cosign.pub"), OCI: &catalog.OCISettings{URL: "oci://" + h.host + "/vendor/upf"}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("vendor", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	if diff := cmp.Diff([]string{"template upf:v1.0.0 1 gitops:vendor"}, w.entities()); diff != "" {
		t.Error(diff)
	}
	if left := consistent(s).Message; !strings.Contains(left, "v2.0.0 is left out: none of its 1 signatures is valid") {
		t.Errorf("the condition is %q: want one about the signature of another artifact", left)
	}
}

// If a catalog has a cosign key, only artifacts that are signed by it become templates.
func TestCatalogLeavesOutArtifactsWithoutValidSignatures(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cosign.pub")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHub(t)
	good := h.flux("upf", "good", "1")
	h.sign("upf", good, key, good)
	unknown := h.flux("upf", "unknown-key", "2")
	h.sign("upf", unknown, other, unknown)
	replayed := h.flux("upf", "replayed", "3")
	h.sign("upf", replayed, key, good)
	h.flux("upf", "unsigned", "4")
	settings := gitops.Settings{Name: "vendor", Catalog: &catalog.Settings{CosignKeyFile: file, OCI: &catalog.OCISettings{URL: "oci://" + h.host + "/upf"}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("vendor", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	if diff := cmp.Diff([]string{"template upf:good 1 gitops:vendor"}, w.entities()); diff != "" {
		t.Error(diff)
	}
	left := consistent(s).Message
	for _, want := range []string{"unknown-key is left out: none of its 1 signatures is valid", "replayed is left out: none", "unsigned is left out: it isn't signed"} {
		if !strings.Contains(left, want) {
			t.Errorf("the condition is %q: want %q", left, want)
		}
	}
	if strings.Contains(left, ".sig is left out") {
		t.Errorf("the condition is %q: want signatures to be no versions", left)
	}
}

// pgp returns a PGP key, and a file of its public part.
func pgp(t *testing.T) (*openpgp.Entity, string) {
	t.Helper()
	entity, err := openpgp.NewEntity("Vendor", "", "vendor@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = entity.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	file := filepath.Join(t.TempDir(), "keys.asc")
	if err == nil {
		err = os.WriteFile(file, b.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return entity, file
}

// If a catalog has PGP keys, only tags, and branches whose newest commit, are signed by one
// of them become templates. A signed tag doesn't count under another name.
func TestCatalogLeavesOutTagsWithoutValidSignatures(t *testing.T) {
	t.Parallel()
	key, file := pgp(t)
	other, _ := pgp(t)
	r := newRepo(t)
	signed := func(name, value string, by *openpgp.Entity) {
		r.push(map[string]string{"upf/c.yaml": configMap(value)})
		opened, err := gogit.PlainOpen(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		head, err := opened.Head()
		if err == nil {
			_, err = opened.CreateTag(name, head.Hash(), &gogit.CreateTagOptions{Message: name, SignKey: by, Tagger: &object.Signature{Name: "v", Email: "v@example.com"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		git(t, r.dir, "push", "-q", "origin", "refs/tags/"+name)
	}
	signed("v1", "1", key)
	git(t, r.dir, "push", "-q", "origin", "refs/tags/v1:refs/tags/v9")
	signed("v2", "2", other)
	r.tag("v3", map[string]string{"upf/c.yaml": configMap("3")})
	git(t, r.dir, "tag", "v4")
	git(t, r.dir, "push", "-q", "origin", "refs/tags/v4", "HEAD:refs/heads/plain")
	for branch, by := range map[string]*openpgp.Entity{"signed": key, "foreign": other} {
		opened, err := gogit.PlainOpen(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := opened.Worktree()
		if err == nil {
			_, err = files.Commit(branch, &gogit.CommitOptions{AllowEmptyCommits: true, SignKey: by, Author: &object.Signature{Name: "v", Email: "v@example.com"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		git(t, r.dir, "push", "-q", "origin", "HEAD:refs/heads/"+branch)
	}
	settings := gitops.Settings{Name: "vendor", Git: gitops.GitSettings{URL: r.url}, Catalog: &catalog.Settings{PGPKeyFile: file, Tags: []string{"v*"}, Branches: []string{"plain", "signed", "foreign"}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	s := w.until("vendor", "applied", func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue })
	if got := w.entities(); len(got) != 2 || !strings.HasPrefix(got[0], "template upf:signed-") || got[1] != "template upf:v1 1 gitops:vendor" {
		t.Errorf("the templates are %q: want those of the signed tag and the signed branch", got)
	}
	left := consistent(s).Message
	for _, want := range []string{
		"branch plain is left out: its newest commit isn't signed", "branch foreign is left out: its signature is not valid",
		"v2 is left out: its signature is not valid", "v3 is left out: it isn't signed with a PGP key", "v4 is left out: it isn't signed", `v9 is left out: its signature is for the tag "v1"`,
	} {
		if !strings.Contains(left, want) {
			t.Errorf("the condition is %q: want %q", left, want)
		}
	}
	// A signature is for its commit: a tag that was moved since it was listed is invalid.
	session, err := r.open(tree.Limits{}).FetchAll(t.Context(), []string{"tags/v1", "tags/v2"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	keys, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commit := git(t, r.dir, "rev-parse", "v2^{commit}")
	if _, err := session.Files(t.Context(), "tags/v1", commit, "", string(keys)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "it was moved") {
		t.Errorf("another commit than that of the signed tag: the error is %v", err)
	}
}

// A catalog registers charts of a Helm repository, verified by the index' digests, and by
// provenance files if it has PGP keys.
func TestCatalogRegistersChartsOfHelmRepositories(t *testing.T) {
	t.Parallel()
	key, file := pgp(t)
	other, _ := pgp(t)
	signer := key
	files := map[string][]byte{}
	var index strings.Builder
	index.WriteString("apiVersion: v1\nentries:\n  web:\n")
	publish := func(version string, by bool, digest func([]byte) string) {
		name := "charts/web-" + version + ".tgz"
		files[name] = archived(t, map[string]string{"web/Chart.yaml": "version: " + version, "web/values.schema.json": "{}"})
		sum := digest(files[name])
		fmt.Fprintf(&index, "  - {version: %q, digest: %q, urls: [%q]}\n", version, sum, name)
		if by {
			var b bytes.Buffer
			w, err := clearsign.Encode(&b, signer.PrivateKey, nil)
			if err == nil {
				_, err = fmt.Fprintf(w, "name: web\n\n...\nfiles:\n  web-%s.tgz: sha256:%s\n", version, sum)
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			files[name+".prov"] = b.Bytes()
		}
	}
	right := func(data []byte) string { sum := sha256.Sum256(data); return hex.EncodeToString(sum[:]) }
	publish("1.0.0", true, right)
	publish("1.1.0", false, right)
	publish("1.2.0", true, func([]byte) string { return strings.Repeat("0", 64) })
	publish("1.3.0", false, right)
	files["charts/web-1.3.0.tgz.prov"] = files["charts/web-1.0.0.tgz.prov"]
	signer = other
	publish("1.4.0", true, right)
	index.WriteString("  other: []\n")
	files["index.yaml"] = []byte(index.String())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, ok := files[strings.TrimPrefix(r.URL.Path, "/repo/")]; ok {
			_, _ = w.Write(data)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	unverified := gitops.Settings{Name: "charts", Catalog: &catalog.Settings{ID: "a/{path}:{tag}", Helm: &catalog.HelmSettings{URL: server.URL + "/repo", Charts: []string{"w*"}}}}
	verified := gitops.Settings{Name: "signed", Catalog: &catalog.Settings{ID: "b/{path}:{tag}", PGPKeyFile: file, Helm: &catalog.HelmSettings{URL: server.URL + "/repo"}}}
	w := start(t, data(t), gitops.Options{Sources: []gitops.Spec{spec(t, unverified), spec(t, verified)}})
	isReady := func(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue }
	first := w.until("charts", "applied", isReady)
	second := w.until("signed", "applied", isReady)
	if diff := cmp.Diff([]string{
		"template a/web:1.0.0 1 gitops:charts", "template a/web:1.1.0 1 gitops:charts", "template a/web:1.3.0 1 gitops:charts", "template a/web:1.4.0 1 gitops:charts", "template b/web:1.0.0 1 gitops:signed",
	}, w.entities()); diff != "" {
		t.Error(diff)
	}
	web, err := w.Template(context.WithoutCancel(t.Context()), "a/web:1.0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := web.Package[0]; r.Text("spec", "chart") != "web" || r.Text("spec", "repository") != server.URL+"/repo" || r.Text("spec", "version") != "1.0.0" {
		t.Errorf("the chart's resource is %v", r)
	}
	if left := consistent(first).Message; !strings.Contains(left, "web:1.2.0 is left out: the archive has another digest") {
		t.Errorf("the condition is %q", left)
	}
	left := consistent(second).Message
	for _, want := range []string{"web:1.1.0 is left out: it isn't signed", "web:1.3.0 is left out: its signature is for another archive", "web:1.4.0 is left out: its signature is not valid"} {
		if !strings.Contains(left, want) {
			t.Errorf("the condition is %q: want %q", left, want)
		}
	}
}
