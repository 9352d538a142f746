package process

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
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
	cmd := exec.Command(filepath.Join(root(), "test", "setup", "python.sh"), arguments...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// PythonSDK returns the folder of the SDK's Python packages.
func PythonSDK() string { return filepath.Join(root(), "sdk", "python", "src") }

// root returns the folder of the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
