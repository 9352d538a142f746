package tkoserver

import (
	"context"
	"io"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("TKO_ALLOW_ROOT", "true"); err != nil { // tests may run as root
		panic(err)
	}
	os.Exit(m.Run())
}

// run runs tko-server.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return Program{Name: "tko-server"}.run(ctx, args, stdout, stderr)
}
