package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Python returns the folder of the tests' Python environment. It makes the
// environment if it does not exist, once for all tests. The SDK is not installed
// there: set PYTHONPATH to PythonSDK.
func Python(t testing.TB) string {
	t.Helper()
	return pythonFor(t)
}

// Ansible returns the folder of the tests' Python environment with ansible-core. The
// SDK is not installed there, as in that of Python.
func Ansible(t testing.TB) string {
	t.Helper()
	return pythonFor(t, "ansible")
}

func pythonFor(t testing.TB, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(Root(), "test", "setup", "python.sh"), arguments...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// PythonSDK returns the folder of the SDK's Python packages.
func PythonSDK() string { return filepath.Join(Root(), "sdk", "python", "src") }

// Root returns the folder of the repository. Paths in programs don't name it: tests are built with -trimpath, so that
// all clones share the cache of builds.
func Root() string { return repository }

var repository = rootAbove()

// rootAbove returns the nearest folder with a go.mod, from that of the package under test.
func rootAbove() string {
	folder, err := os.Getwd()
	for ; err == nil; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil || folder == filepath.Dir(folder) {
			break
		}
	}
	return folder
}
