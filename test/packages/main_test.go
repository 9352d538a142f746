package packages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/test/process"
)

const repository = "../.."

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	_ = os.RemoveAll(distDir)
	os.Exit(code)
}

// limit bounds commands on busy machines.
const limit = 4 * time.Minute

// command runs a program, and returns what it printed.
func command(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

func try(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // also when the test ends
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.WaitDelay = dir, time.Second
	out, err := c.CombinedOutput()
	return string(out), err
}

var (
	distOnce sync.Once
	distDir  string
)

// dist makes the Debian packages of this machine's architecture, once, from programs
// that were built for tests, and returns their folder.
func dist(t *testing.T) string {
	t.Helper()
	distOnce.Do(func() {
		tools := t.TempDir()
		out, err := os.MkdirTemp("", "tko-dist-") //nolint:usetesting // several tests use it
		if err != nil {
			t.Fatal(err)
		}
		process.Reads(t, "deploy", "tools/release", "tools/security", "examples", "LICENSE", "NOTICE")
		programs := process.Folder(t, "tko", "tko-server", "tko-kubernetes", "tko-tosca", "tko-agent")
		for folder, pkg := range map[string]string{"release": ".", "security": "./sbom"} {
			command(t, filepath.Join(repository, "tools", folder), "go", "build", "-o", tools+"/", pkg)
		}
		command(t, repository, filepath.Join(tools, "release"), "-source", ".", "-out", out, "-sbom", filepath.Join(tools, "sbom"), "-programs", programs,
			"-version", "v1.2.3", "-epoch", "1700000000", "-platforms", runtime.GOARCH, "-formats", "deb", "-compression", "none")
		distDir = out
	})
	if distDir == "" {
		t.Fatal("there are no packages: see the other tests")
	}
	return distDir
}

// find returns the only file of a pattern.
func find(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, folder, found, err)
	}
	return found[0]
}
