package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// A judged is a test whose failures are observed.
type judged struct {
	testing.TB

	cleanups []func()
	failures []any
}

func (j *judged) Cleanup(f func())  { j.cleanups = append(j.cleanups, f) }
func (j *judged) Error(args ...any) { j.failures = append(j.failures, args...) }
func (j *judged) Errorf(format string, args ...any) {
	j.failures = append(j.failures, fmt.Sprintf(format, args...))
}
func (j *judged) Failed() bool        { return len(j.failures) > 0 }
func (j *judged) Logf(string, ...any) {}

func (j *judged) end() {
	for len(j.cleanups) > 0 {
		last := j.cleanups[len(j.cleanups)-1]
		j.cleanups = j.cleanups[:len(j.cleanups)-1]
		last()
	}
}

func TestDataRaceOfServerFailsItsTest(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		if _, err := exec.LookPath("clang"); err != nil {
			return // without a C compiler, as test/setup/run.sh reports, no program has the race detector
		}
	}
	process.Reads(t, "test/process/testdata")
	program := filepath.Join(t.TempDir(), "racy")
	build := exec.Command("go", "build", "-race", "-o", program, "./testdata/racy")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	j := &judged{TB: t}
	process.StartOtherServer(j, program)
	j.end()
	if !j.Failed() {
		t.Error("a server with a data race did not fail its test")
	}
}
