package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// blocks returns the code blocks of a page with a mark.
func blocks(t *testing.T, page, mark string, least int) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+mark+"\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	if len(found) < least {
		t.Fatalf("%s has %d blocks of %s: did their mark change?", page, len(found), mark)
	}
	return found
}

// The commands of the tutorial work as described.
func TestTutorialCommandsWork(t *testing.T) {
	t.Setenv("PYTHONPATH", process.PythonSDK())
	env := process.Python(t)
	server := process.StartServer(t, "--store=sqlite::memory:", "--plugin-environment=PYTHONPATH", "--python-env="+env)
	bash := exec.CommandContext(t.Context(), "bash", "-x")
	bash.Dir = t.TempDir()
	bash.Stdin = strings.NewReader("set -euo pipefail\n" + strings.Join(blocks(t, "tutorial-plugin.md", "sh tutorial", 5), ""))
	bash.Env = append(os.Environ(), "PATH="+strings.Join([]string{filepath.Join(env, "bin"), process.Folder(t, "tko"), os.Getenv("PATH")}, ":"))
	bash.Env = append(bash.Env, server.Env()...)
	out, err := bash.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"spec.who is required", "Hello, Lagos!"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tutorial's output lacks %q", want)
		}
	}
	if !strings.Contains(server.Log(), `"line":"greeted Lagos"`) {
		t.Error("the plugin's line is not in the log")
	}
}

// The examples in docs/python-sdk.md run, and type-check.
func TestDocumentedExamplesRun(t *testing.T) {
	t.Parallel()
	server := process.StartServer(t, "--roles=data", "--store=sqlite::memory:")
	for i, example := range blocks(t, "python-sdk.md", "python", 4) {
		if strings.Contains(example, "tko.run(") {
			example = strings.ReplaceAll(example, `if __name__ == "__main__":`, "def main() -> None:")
		}
		file := filepath.Join(t.TempDir(), "example.py")
		if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := python(t, file)
		cmd.Env = append(cmd.Env, "TKO_GRPC_HOST="+server.GRPC)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("example %d: %v\n%s\n%s", i+1, err, out, example)
		}
		run(t, python(t, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null", file))
	}
}
