package oci_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/oci"
)

// newKey writes a private key, and returns the public one.
func newKey(t *testing.T, path string) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: data}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

// signed returns how many signatures of a key the artifact of the site has, as cosign verifies them.
func (h *hub) signed(t *testing.T, key *ecdsa.PublicKey) (n int) {
	t.Helper()
	digest, r := h.digest(t, "fleet/lagos"), h.repository(t, "fleet/lagos")
	_, text, err := oras.FetchBytes(t.Context(), r, strings.Replace(digest, ":", "-", 1)+".sig", oras.DefaultFetchBytesOptions)
	if errors.Is(err, errdef.ErrNotFound) {
		return 0
	}
	var m ocispec.Manifest
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range m.Layers {
		payload, err := content.FetchAll(t.Context(), r.Blobs(), layer)
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			Critical struct {
				Image struct {
					Digest string `json:"docker-manifest-digest"`
				} `json:"image"`
				Type string `json:"type"`
			} `json:"critical"`
		}
		if err := json.Unmarshal(payload, &claims); err != nil {
			t.Fatal(err)
		}
		signature, err := base64.StdEncoding.DecodeString(layer.Annotations["dev.cosignproject.cosign/signature"])
		sum := sha256.Sum256(payload)
		if err == nil && layer.MediaType == "application/vnd.dev.cosign.simplesigning.v1+json" && claims.Critical.Image.Digest == digest &&
			claims.Critical.Type == "cosign container image signature" && ecdsa.VerifyASN1(key, sum[:], signature) {
			n++
		}
	}
	return n
}

// Each artifact is signed before the tag has it, and once.
func TestArtifactsAreSigned(t *testing.T) {
	t.Parallel()
	h, dir := newHub(t), t.TempDir()
	ours, others := newKey(t, filepath.Join(dir, "key.pem")), newKey(t, filepath.Join(dir, "other.pem"))
	target := oci.New(oci.Options{Secrets: dir})
	trigger, other := h.artifact("credentials", map[string]any{"signingKeyFile": "key.pem"}), h.artifact("credentials", map[string]any{"signingKeyFile": "other.pem"})
	v1, v2 := []tko.Deployment{deployment("a", 1, configMap("one", "1"))}, []tko.Deployment{deployment("a", 2, configMap("one", "2"))}

	h.hook(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".sig") {
			return http.StatusBadGateway
		}
		return 0
	})
	if _, err := target.Schedule(t.Context(), trigger, lagos, v1); err == nil || h.digest(t, "fleet/lagos") != "" {
		t.Errorf("without a signature, the tag was set: %v", err)
	}
	h.hook(nil)
	schedule(t, target, trigger, lagos, v1)
	if n := h.signed(t, ours); n != 1 {
		t.Errorf("%d signatures", n)
	}
	h.written()
	if schedule(t, target, trigger, lagos, v1); h.written() > 0 {
		t.Error("it was signed again")
	}
	schedule(t, target, other, lagos, v1)
	if n, m := h.signed(t, ours), h.signed(t, others); n != 1 || m != 1 {
		t.Errorf("with another key, it has %d and %d signatures", n, m)
	}
	schedule(t, target, h.artifact(), lagos, v2)
	if n := h.signed(t, ours); n != 0 {
		t.Error("it was signed without a key")
	}
	schedule(t, target, trigger, lagos, v2)
	if n := h.signed(t, ours); n != 1 {
		t.Error("what was published without a key is not signed later")
	}

	if err := os.WriteFile(filepath.Join(dir, "wrong.pem"), []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := h.artifact("credentials", map[string]any{"signingKeyFile": "wrong.pem"})
	if _, err := target.Schedule(t.Context(), wrong, lagos, v1); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "spec.credentials.signingKeyFile") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a file without a key: %v", err)
	}
}
