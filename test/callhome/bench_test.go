package callhome_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// The benchmark of agents runs them in processes of their own, and sees all of them again after it has
// killed the server.
func TestBenchmarkOfAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	restart := strings.Join(append([]string{process.Build(t, "tko-server"), "--listen-web=localhost:0", "--listen-log=localhost:0"}, w.flags...), " ")
	cmd := exec.CommandContext(t.Context(), process.Build(t, "tko-bench"), "agents", "-address", w.grpc, "-agents", w.agents, "-ca", w.ca,
		"-n", "4", "-processes", "2", "-idle", "100ms", "-wait", timeLimit.String(), "-pid", strconv.Itoa(w.server.PID), "-restart", restart)
	cmd.Env = append(os.Environ(), process.Environment()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"registered 4 sites", "agents connected after", "KiB for an agent", "a deployment at each of 4 sites", "restart: the first agent is connected again after .*, all after .* resident"} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("%q is not in the report:\n%s", want, out)
		}
	}
}
