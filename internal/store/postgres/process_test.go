package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// writerEnvironment is the name of the variable that makes this test binary run as a
// second process, on the database whose DSN is its value.
const writerEnvironment = "TKO_TEST_WRITER"

func writerMain(dsn string) int {
	ctx := context.Background()
	s, err := postgres.Open(ctx, dsn, postgres.Options{})
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

func second(t *testing.T, dsn string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnvironment+"="+dsn)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	dsn := pgtest.DSN(t)
	storetest.KillWriter(t, func() *exec.Cmd { return second(t, dsn) }, func(t *testing.T) record.Store { return open(t, dsn) })
}

func TestTwoProcessesBehaveAsOne(t *testing.T) {
	dsn := pgtest.DSN(t)
	storetest.CompeteWithProcess(t, second(t, dsn), open(t, dsn))
}
