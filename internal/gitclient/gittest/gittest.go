// Package gittest runs git, and serves its repositories, for tests.
package gittest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cgi" //nolint:gosec // only tests use it, with a current Go
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Run runs git in a directory, without the user's configuration, and returns its
// output, trimmed. The author of commits is "a". A failure ends the test.
func Run(t testing.TB, dir string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", arguments...) //nolint:gosec // tests choose the arguments
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Handler serves the repositories in a folder with git's own program. env is added to the program's environment.
func Handler(t testing.TB, folder string, env ...string) http.Handler {
	t.Helper()
	backend := &cgi.Handler{
		Path: filepath.Join(Run(t, "", "--exec-path"), "git-http-backend"), Stderr: io.Discard,
		Env: append([]string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=" + folder}, env...),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// git-http-backend loops forever if a body ends before its length: it gets complete bodies only.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client was killed
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		backend.ServeHTTP(w, r)
	})
}

// Write writes files by name into a folder, and removes those whose content is "".
func Write(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		write := func() error {
			return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
		}
		if content == "" {
			write = func() error { return os.RemoveAll(path) }
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
}
