package version_test

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/tko-orchestrator/tko/internal/version"
)

// Programs that make builds know their commit, also in a work tree of which Go can't find
// it.
func TestBuildsKnowTheirCommit(t *testing.T) {
	t.Parallel()
	commit := `[0-9a-f]{40}`
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		commit = "'" // an unpacked archive has none, and the build works without it
	}
	out, err := exec.Command("make", "-n", "-C", "../..", "build").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`internal/version\.Commit=` + commit).Match(out) {
		t.Errorf("make build doesn't set the commit:\n%s", out)
	}
	if version.BuiltFrom() == "" {
		t.Error("no text for a build without version control")
	}
}
