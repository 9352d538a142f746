// Package gittest runs git for tests.
package gittest

import (
	"context"
	"os"
	"os/exec"
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
