package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// writerEnvironment is the name of the variable that makes this test binary run as a
// second process, on the file whose path is its value.
const writerEnvironment = "TKO_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnvironment); path != "" {
		os.Exit(writerMain(path))
	}
	os.Exit(m.Run())
}

func writerMain(path string) int {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err == nil {
		if name := os.Args[len(os.Args)-1]; name == "competitor" {
			err = storetest.Compete(ctx, s, name, os.Stdout)
		} else {
			err = storetest.Write(ctx, s, name, 1_000_000, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func second(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnvironment+"="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.KillWriter(t, func() *exec.Cmd { return second(t, path) }, func(t *testing.T) record.Store { return file(t, path) })
}

func TestTwoProcessesOnOneFileDoNotHarmEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	storetest.CompeteWithProcess(t, second(t, path), file(t, path))
}
