package secret_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/secret"
)

func TestReferencesReachOnlyWhatTheOperatorLists(t *testing.T) {
	var logins, renewals int
	lifetime := 3600
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("X-Vault-Token")
		switch {
		case r.URL.Path == "/v1/auth/kubernetes/login":
			logins++
			_, _ = fmt.Fprintf(w, `{"auth": {"client_token": "token", "lease_duration": %d}}`, lifetime)
		case r.URL.Path == "/v1/auth/token/renew-self" && token == "token":
			renewals++
			_, _ = fmt.Fprint(w, `{"auth": {"client_token": "token", "lease_duration": 3600}}`)
		case r.URL.Path == "/v1/secret/data/tko/git" && token == "token":
			_, _ = fmt.Fprint(w, `{"data": {"data": {"password": "hunter2", "number": 5}}}`)
		case r.URL.Path == "/v1/kv/tko/git" && token == "token":
			_, _ = fmt.Fprint(w, `{"data": {"password": "hunter1"}}`)
		case r.URL.Path == "/v1/secret/data/tko/elsewhere":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		default:
			http.Error(w, "denied: canary", http.StatusForbidden)
		}
	}))
	defer vault.Close()
	jwt := filepath.Join(t.TempDir(), "jwt")
	if err := os.WriteFile(jwt, []byte("jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ALLOWED", "open-sesame")
	t.Setenv("SERVER_SECRET", "canary")
	sources := secret.Sources{
		Environment: []string{"ALLOWED", "EMPTY"},
		Vault:       &secret.Vault{Address: vault.URL, Prefixes: []string{"secret/data/tko", "kv/tko/"}, Role: "tko", JWTFile: jwt},
	}
	tests := map[string]struct {
		why, reference, want string
		refused              bool
	}{
		"variable":            {why: "it is listed", reference: "env:ALLOWED", want: "open-sesame"},
		"another variable":    {why: "the server's environment has secrets of its own", reference: "env:SERVER_SECRET", refused: true},
		"empty variable":      {why: "a password is never empty", reference: "env:EMPTY"},
		"Vault":               {why: "it is below a path", reference: "vault:secret/data/tko/git#password", want: "hunter2"},
		"Vault, version 1":    {why: "that engine has no data in data", reference: "vault:kv/tko/git#password", want: "hunter1"},
		"another path":        {why: "the server may read more than packages", reference: "vault:secret/data/other#password", refused: true},
		"a prefix of a name":  {why: "paths end with names", reference: "vault:secret/data/tko-other/git#password", refused: true},
		"dots":                {why: "the path leads out", reference: "vault:secret/data/tko/../other#password", refused: true},
		"encoded dots":        {why: "the path leads out", reference: "vault:secret/data/tko/%2e%2e/other#password", refused: true},
		"no key":              {why: "a secret is one value", reference: "vault:secret/data/tko/git", refused: true},
		"not a text":          {why: "a password is a text", reference: "vault:secret/data/tko/git#number"},
		"denied by Vault":     {why: "its text may hold secrets", reference: "vault:secret/data/tko/denied#password"},
		"redirected":          {why: "the token must not go elsewhere", reference: "vault:secret/data/tko/elsewhere#password"},
		"a file":              {why: "files have a folder of their own", reference: "/etc/shadow", refused: true},
		"a scheme of its own": {why: "it is unknown", reference: "file:/etc/shadow", refused: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			grant, err := leash.Operator().Grant(test.reference, "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := sources.Resolve(t.Context(), test.reference, grant)
			if string(got) != test.want || (err == nil) != (test.want != "") || errors.Is(err, secret.ErrReference) != test.refused {
				t.Errorf("got %q, %v; want %q, refused %t: %s", string(got), err, test.want, test.refused, test.why)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	if logins != 1 || renewals != 0 {
		t.Errorf("%d logins and %d renewals, want one login", logins, renewals)
	}
	lifetime = 0
	short := &secret.Vault{Address: vault.URL, Prefixes: []string{"kv/tko"}, Role: "tko", JWTFile: jwt}
	for range 2 {
		if got, err := short.Read(t.Context(), "kv/tko/git#password"); err != nil || got != "hunter1" {
			t.Errorf("got %q, %v", string(got), err)
		}
	}
	if logins != 3 {
		t.Errorf("%d logins, want one more for each use of a token that has ended", logins)
	}
	grant, err := leash.Operator().Grant("env:ALLOWED", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (secret.Sources{}).Resolve(t.Context(), "env:ALLOWED", grant); !errors.Is(err, secret.ErrReference) {
		t.Errorf("got %v, want a refusal: nothing is allowed by default", err)
	}
}
