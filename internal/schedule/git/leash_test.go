package git_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
)

// A server that a user names asks for a login, and gets no credential that is declared for
// others; it gets one that is declared for it.
func TestServersGetOnlyTheCredentialsThatAreDeclaredForThem(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, ok := r.BasicAuth(); ok {
			got.Store(password)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	dir := t.TempDir()
	declared := filepath.Join(dir, "credentials.yaml")
	for name, text := range map[string]string{
		"canary": "s3cret", declared: "credentials:\n- {name: 'git:canary', hosts: [git.example.com, '127.0.0.1'], sites: ['ours/**']}\n",
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := leash.Open(declared)
	if err != nil {
		t.Fatal(err)
	}
	target := git.New(git.Options{Cache: t.TempDir(), Secrets: dir, Leash: l})
	for _, spelling := range []string{"canary", "./canary", filepath.Join(dir, "canary")} {
		r := repository(map[string]any{"url": server.URL + "/r.git", "credentials": map[string]any{"username": "u", "passwordFile": spelling}})
		if _, err := target.Schedule(t.Context(), r, tko.Site{ID: "theirs/1"}, nil); !errors.Is(err, tko.ErrDenied) || got.Load() != nil {
			t.Errorf("%s: the error is %v, and the server got %v, want nothing", spelling, err, got.Load())
		}
		if _, err := target.Compare(t.Context(), r, tko.Site{ID: "theirs/1"}, nil, nil); !errors.Is(err, tko.ErrDenied) || got.Load() != nil {
			t.Errorf("%s: the error of a comparison is %v, and the server got %v, want nothing", spelling, err, got.Load())
		}
		if _, err := target.Schedule(t.Context(), r, tko.Site{ID: "ours/1"}, nil); err == nil || got.Load() != "s3cret" {
			t.Errorf("%s: the error is %v, and the server got %v, want the credential", spelling, err, got.Load())
		}
		got = atomic.Value{}
	}
}
