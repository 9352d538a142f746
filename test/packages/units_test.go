package packages

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// exposure is the most that systemd-analyze may report; docs/install.md states it.
var exposure = map[string]float64{"tko-server.service": 3.0, "tko-data.service": 1.5, "tko-agent.service": 2.0}

var overall = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// needed returns the path of a program that the tests need; it must be there.
func needed(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("install %s: the packages are tested with its %s", pkg, name)
	}
	return path
}

func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	analyze := needed(t, "systemd-analyze", "systemd")
	for unit, most := range exposure {
		path, err := filepath.Abs(filepath.Join(repository, "deploy/packages/systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		out := command(t, "", analyze, "security", "--offline=true", "--no-pager", path)
		m := overall.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s: no exposure level in\n%s", unit, out)
		}
		level, err := strconv.ParseFloat(m[1], 64)
		if err != nil || level > most {
			t.Errorf("%s has the exposure level %s, want at most %g\n%s", unit, m[1], most, out)
		}
		if strings.Contains(out, "ignoring") { // a misspelled option has no effect
			t.Errorf("%s has unknown options:\n%s", unit, out)
		}
	}
}
