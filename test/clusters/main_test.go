package clusters_test

import (
	"os"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	code := kube.Main(m)
	process.Clean()
	os.Exit(code)
}
