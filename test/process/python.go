package process

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Python answers the folder of the Python environment that tests run with. It
// is made, once for all tests, if it isn't there. The SDK isn't in it: set
// PYTHONPATH to PythonSDK.
func Python(t testing.TB) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(root(), "test", "setup", "python.sh"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// PythonSDK answers the folder from which Python imports the SDK.
func PythonSDK() string { return filepath.Join(root(), "sdk", "python", "src") }

// root is the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
