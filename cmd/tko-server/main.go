// Command tko-server serves TKO: the data controller, the preparer and the
// meta-scheduler, all in one process or any set of them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	if code, is := krmfn.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); is {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
