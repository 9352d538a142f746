package git_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/git"
)

// Without permission of the operator, a site's package makes the server neither
// connect to its own machine nor write to its folders. The error, which users read in
// a condition, has nothing of a server's response.
func TestSitesReachNothingOfTheServer(t *testing.T) {
	t.Parallel()
	const secret = "the-secret-of-a-service"
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch {
		case strings.HasPrefix(r.URL.Path, "/away"):
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/ok"):
			_, _ = w.Write([]byte(secret))
		case strings.HasPrefix(r.URL.Path, "/denied"):
			http.Error(w, secret, http.StatusForbidden)
		default:
			http.Error(w, secret, http.StatusTeapot)
		}
	}))
	defer server.Close()
	allowed, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(outside, "there"), 0o750); err != nil {
		t.Fatal(err)
	}
	attempt := func(o guard.Options, location string) error {
		o.FoldersFlag = "--git-local"
		g, err := guard.New(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = git.New(git.Options{Cache: t.TempDir(), Guard: g}).Schedule(t.Context(), repository(map[string]any{"url": location}), tko.Site{ID: "s"}, nil)
		return err
	}
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, location := range []string{server.URL + "/x.git", "http://localhost" + port + "/x.git", "http://169.254.169.254/x.git"} {
		if err := attempt(guard.Options{}, location); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s: %v", location, err)
		}
	}
	if asked > 0 {
		t.Error("the server's own machine was asked")
	}
	ssh := repository(map[string]any{"url": "ssh://git@localhost/x.git", "credentials": map[string]any{"sshKeyFile": "key", "knownHostsFile": "hosts"}})
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := git.New(git.Options{Cache: t.TempDir(), Guard: g}).Schedule(t.Context(), ssh, tko.Site{ID: "s"}, nil); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("by ssh: %v", err)
	}

	loopback := guard.Options{Addresses: []string{"127.0.0.0/8", "::1"}, Folders: []string{allowed}}
	for _, path := range []string{"/x.git", "/ok.git", "/denied.git"} {
		if err := attempt(loopback, server.URL+path); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error has what the server responds: %v", path, err)
		}
	}
	if err := attempt(loopback, server.URL+"/away.git"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a redirection: %v", err)
	}

	if err := attempt(loopback, filepath.Join(allowed, "new", "sites.git")); err != nil {
		t.Errorf("an allowed folder: %v", err)
	}
	says := map[string]bool{}
	for _, path := range []string{"there", "missing", "there/sites.git", "file"} {
		err := attempt(loopback, filepath.Join(outside, path))
		if !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s: %v", path, err)
			continue
		}
		says[err.Error()] = true
	}
	if err := attempt(guard.Options{}, filepath.Join(outside, "missing")); !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), "--git-local") {
		t.Errorf("without folders: %v", err)
	}
	if len(says) != 1 {
		t.Errorf("the errors tell what is there: %v", says)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}
