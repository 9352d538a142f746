package helm_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm/helmtest"
)

func basic(password string) string {
	return base64.StdEncoding.EncodeToString([]byte("tko:" + password))
}

// The store sends the operator's credentials for a host, and reads the file again for
// each request.
func TestHostGetsItsCredentials(t *testing.T) {
	t.Parallel()
	server := helmtest.Serve(t)
	server.Add("web", "1.0.0", helmtest.Archive(t, "web", "1.0.0", nil))
	server.Require("tko", "hunter2")
	host := strings.TrimPrefix(server.URL, "http://")
	good, bad := basic("hunter2"), basic("hunter3")
	places := map[string]helm.Reference{
		"repository": {Chart: "web", Repository: server.Repository()},
		"URL":        {Chart: server.Repository() + "/web@1.0.0.tgz"},
		"registry":   {Chart: server.Registry() + "/web"},
		"tag":        {Chart: server.Registry() + "/web:1.0.0"},
	}
	tests := map[string]struct {
		why     string
		file    string // HOST is the server's
		wantErr string
	}{
		"host":             {"as docker login writes it", `{"auths": {"HOST": {"auth": "` + good + `"}, "other.example.com": {"auth": "` + bad + `"}}}`, ""},
		"plain":            {"some write it so", `{"auths": {"HOST": {"username": "tko", "password": "hunter2"}}}`, ""},
		"URL":              {"older clients", `{"auths": {"http://HOST/v2/": {"auth": "` + good + `"}}}`, ""},
		"paths":            {"what says more wins", `{"auths": {"HOST": {"auth": "` + bad + `"}, "HOST/charts": {"auth": "` + good + `"}, "HOST/oci": {"auth": "` + good + `"}}}`, ""},
		"not for all":      {"credentials for a path are not for the rest of the host", `{"auths": {"HOST/oc": {"auth": "` + good + `"}, "HOST/chart": {"auth": "` + good + `"}}}`, "--chart-credentials"},
		"wrong":            {"they are refused", `{"auths": {"HOST": {"auth": "` + bad + `"}}}`, "--chart-credentials"},
		"nothing":          {"the remedy is named", `{}`, "--chart-credentials"},
		"another's":        {"a host gets only its own credentials", `{"auths": {"other.example.com": {"auth": "` + good + `"}}}`, "--chart-credentials"},
		"no JSON":          {"what is in it isn't shown", `hunter2`, "is not a config.json"},
		"no base64":        {"what is in it isn't shown", `{"auths": {"HOST": {"auth": "hunter2!"}}}`, "in base64"},
		"without password": {"what is in it isn't shown", `{"auths": {"HOST": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("hunter2")) + `"}}}`, "in base64"},
	}
	for name, test := range tests {
		for place, from := range places {
			t.Run(name+" "+place, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "config.json")
				store := helm.NewStore(helm.StoreOptions{Credentials: file})
				_, err := store.Get(t.Context(), from)
				if err == nil || !strings.Contains(err.Error(), "read the file of chart credentials") || errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), file) {
					t.Errorf("without the file, which may come: %v", err)
				}
				if err := os.WriteFile(file, []byte(strings.ReplaceAll(test.file, "HOST", host)), 0o600); err != nil {
					t.Fatal(err)
				}
				_, err = store.Get(t.Context(), from)
				switch {
				case test.wantErr == "" && err != nil:
					t.Errorf("%s: %v", test.why, err)
				case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, tko.ErrInvalid)):
					t.Errorf("%s: %v", test.why, err)
				case err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), good)):
					t.Errorf("tells too much: %v", err)
				}
			})
		}
	}
}

// Credentials are not sent in plain text, nor to the target of a redirection.
func TestCredentialsAreNotSentInPlainTextOrToRedirects(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	got := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		_, _ = w.Write(helmtest.Archive(t, "web", "1.0.0", nil))
	}))
	defer other.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer first.Close()
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}, "charts.example.com": {"registrytoken": "hunter2"}}}`, strings.TrimPrefix(first.URL, "http://"), basic("hunter2"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	store := helm.NewStore(helm.StoreOptions{Credentials: file})
	if _, err := store.Get(t.Context(), helm.Reference{Chart: first.URL + "/web.tgz"}); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a != "Basic "+basic("hunter2") {
		t.Errorf("the host got the header %q", a)
	}
	if a := <-got; a != "" {
		t.Errorf("the target of the redirection got the header %q", a)
	}
	_, err := store.Get(t.Context(), helm.Reference{Chart: "http://charts.example.com/web.tgz"})
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "write https") {
		t.Errorf("over http: %v", err)
	}
}
