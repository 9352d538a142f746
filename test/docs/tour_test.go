package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

var (
	tourBlock = regexp.MustCompile("(?ms)^```sh tour\n(.*?)^```")
	refusal   = regexp.MustCompile(`(?m)^! `)
)

// The README's tour does what it says, line by line.
func TestTour(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\nrefused() { if \"$@\"; then echo \"not refused: $*\"; exit 1; fi; }\n")
	blocks := tourBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 4 {
		t.Fatalf("the README has %d blocks of the tour: did their mark change?", len(blocks))
	}
	for _, b := range blocks {
		script.WriteString(refusal.ReplaceAllString(b[1], "refused "))
	}

	server := process.StartServer(t, "--store=sqlite::memory:")
	folder := t.TempDir()
	for link, to := range map[string]string{"bin": filepath.Dir(process.Build(t, "tko")), "examples": filepath.Join(root, "examples")} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	bash := exec.CommandContext(t.Context(), "bash", "-x")
	bash.Dir, bash.Stdin, bash.Env = folder, strings.NewReader(script.String()), append(os.Environ(), server.Env()...)
	out, err := bash.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"replicas: 2", "replicas: 3", "spec.replicas"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour doesn't show %q", want)
		}
	}
}
