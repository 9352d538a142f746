package oci_test

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/oci"
	"github.com/tko-orchestrator/tko/krm"
)

// A registry that asks for a login, with TLS of an own CA, gets the credentials that are declared
// for it, and no others.
func TestRegistriesGetOnlyTheCredentialsThatAreDeclaredForThem(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		got.Store(user + ":" + password)
		if password != "s3cret" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"canary": "s3cret\n", "wrong": "hunter2", "ca.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), "empty.pem": "x",
		"credentials.yaml": "credentials:\n- {name: 'git:canary', hosts: ['127.0.0.1'], sites: ['ours/**']}\n- {name: 'git:wrong', hosts: ['127.0.0.1'], sites: ['**']}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := leash.Open(filepath.Join(dir, "credentials.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	target := oci.New(oci.Options{Secrets: dir, Leash: l})
	url := "oci://" + strings.TrimPrefix(server.URL, "https://")
	attempt := func(site tko.SiteID, fields map[string]any) error {
		got = atomic.Value{}
		fields["url"] = url
		r := krm.Resource{"apiVersion": oci.GVK.APIVersion(), "kind": oci.GVK.Kind, "metadata": map[string]any{"name": "main"}, "spec": fields}
		_, err := target.Schedule(t.Context(), r, tko.Site{ID: site}, []tko.Deployment{deployment("a", 1, configMap("one", "1"))})
		return err
	}
	login := func(file string) map[string]any { return map[string]any{"username": "u", "passwordFile": file} }
	for _, spelling := range []string{"canary", "./canary", filepath.Join(dir, "canary")} {
		if err := attempt("theirs/1", map[string]any{"caFile": "ca.pem", "credentials": login(spelling)}); !errors.Is(err, tko.ErrDenied) || got.Load() != nil {
			t.Errorf("%s: the error is %v, and the registry got %v, want nothing", spelling, err, got.Load())
		}
		if err := attempt("ours/1", map[string]any{"caFile": "ca.pem", "credentials": login(spelling)}); err != nil || got.Load() != "u:s3cret" {
			t.Errorf("%s: the error is %v, and the registry got %v, want the credential", spelling, err, got.Load())
		}
	}
	for name, test := range map[string]struct {
		fields  map[string]any
		says    string
		invalid bool
	}{
		"a wrong password":      {map[string]any{"caFile": "ca.pem", "credentials": login("wrong")}, "403 Forbidden: check spec.credentials", false},
		"no password":           {map[string]any{"caFile": "ca.pem"}, "spec.credentials", false},
		"a CA without":          {map[string]any{"caFile": "empty.pem"}, "spec.caFile: it holds no certificates", true},
		"a CA that isn't there": {map[string]any{"caFile": "later.pem"}, "spec.caFile", false},
		"a CA elsewhere":        {map[string]any{"caFile": "../ca.pem"}, "folder of secrets", true},
	} {
		if err := attempt("ours/2", test.fields); err == nil || !strings.Contains(err.Error(), test.says) || errors.Is(err, tko.ErrInvalid) != test.invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := attempt("ours/3", map[string]any{}); err == nil {
		t.Error("a registry of this machine that has TLS was used without it")
	}
}

// Without permission of the operator, a site's package makes the server not connect to its own
// machine. The error, which users read in a condition, has nothing of a server's response.
func TestSitesReachNothingOfTheServer(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	asked := 0
	h.hook(func(r *http.Request) int {
		asked++
		return http.StatusTeapot
	})
	attempt := func(o guard.Options, host string) error {
		g, err := guard.New(o)
		if err != nil {
			t.Fatal(err)
		}
		r := h.artifact("url", "oci://"+host+"/x")
		_, err = oci.New(oci.Options{Guard: g}).Schedule(t.Context(), r, lagos, nil)
		return err
	}
	_, port, _ := strings.Cut(h.host, ":")
	for _, host := range []string{h.host, "localhost:" + port, "169.254.169.254", "[::1]:" + port} {
		if err := attempt(guard.Options{}, host); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked > 0 {
		t.Error("the server's own machine was asked")
	}
	if err := attempt(guard.Options{Hosts: []string{"registry.example.com"}}, "registry.example.net"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a host that isn't allowed: %v", err)
	}
	away := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest", http.StatusFound))
	defer away.Close()
	if err := attempt(guard.Options{Addresses: []string{"127.0.0.0/8"}}, strings.TrimPrefix(away.URL, "http://")); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a redirection: %v", err)
	}
	if err := attempt(guard.Options{Addresses: []string{"127.0.0.0/8"}}, h.host); err == nil || strings.Contains(err.Error(), "the-secret") || !strings.Contains(err.Error(), "418") {
		t.Errorf("the error is %v", err)
	}
}

func TestWrongArtifactsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fields map[string]any
		field  string
	}{
		"no URL":              {map[string]any{}, "spec.url"},
		"a URL of a server":   {map[string]any{"url": "https://registry.example.com/x"}, "spec.url"},
		"a name only":         {map[string]any{"url": "registry.example.com/x"}, "spec.url"},
		"a user":              {map[string]any{"url": "oci://hunter2@registry.example.com/x"}, "spec.url"},
		"a query":             {map[string]any{"url": "oci://registry.example.com/x?y=z"}, "spec.url"},
		"a tag in the URL":    {map[string]any{"url": "oci://registry.example.com/x:v1"}, "spec.repository"},
		"upper case":          {map[string]any{"url": "oci://registry.example.com", "repository": "Lagos"}, "spec.repository"},
		"a path":              {map[string]any{"url": "oci://registry.example.com", "repository": "a/../b"}, "spec.repository"},
		"a wrong tag":         {map[string]any{"url": "oci://registry.example.com", "tag": "a/b"}, "spec.tag"},
		"a digest as the tag": {map[string]any{"url": "oci://registry.example.com", "tag": "sha256:" + strings.Repeat("a", 64)}, "spec.tag"},
		"a media type":        {map[string]any{"url": "oci://registry.example.com", "mediaType": "text/plain"}, "spec.mediaType"},
		"two credentials":     {map[string]any{"url": "oci://registry.example.com", "credentials": map[string]any{"username": "u", "passwordFile": "a", "tokenFile": "b"}}, "spec.credentials"},
		"no user":             {map[string]any{"url": "oci://registry.example.com", "credentials": map[string]any{"passwordFile": "a"}}, "spec.credentials"},
	} {
		r := krm.Resource{"apiVersion": oci.GVK.APIVersion(), "kind": oci.GVK.Kind, "metadata": map[string]any{"name": "main"}, "spec": test.fields}
		_, err := oci.New(oci.Options{}).Schedule(t.Context(), r, lagos, nil)
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `Artifact "main": `+test.field+": ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each ID of a site gives a repository of its own.
func TestEachSiteHasARepositoryOfItsOwn(t *testing.T) {
	t.Parallel()
	h, target := newHub(t), oci.New(oci.Options{})
	all := []tko.Deployment{deployment("a", 1, configMap("one", "1"))}
	names := map[string]bool{}
	ids := []tko.SiteID{"lagos", "lagos/edge-1", "Lagos", "lAgos", "a_b", "a__b", "a:b", "a/b", "a//b", "/a/b", "a..b", "a.b", "-", ":", "a/", tko.SiteID(strings.Repeat("a/b", 60)), tko.SiteID(strings.Repeat("A/b", 60))}
	for _, id := range ids {
		schedule(t, target, h.artifact(), tko.Site{ID: id}, all) // a conflict if another site has it
	}
	for _, write := range h.writes {
		if name, _, ok := strings.Cut(strings.TrimPrefix(write, "PUT /v2/"), "/manifests/"); ok {
			names[name] = true
		}
	}
	if len(names) != len(ids) || !names["fleet/lagos/edge-1"] {
		t.Errorf("%d sites have %d repositories: %v", len(ids), len(names), names)
	}
}
