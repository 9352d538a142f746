// Command tko-server serves TKO: the data controller, the preparer and the
// meta-scheduler, all in one process or any set of them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tko-orchestrator/tko/internal/plugin/krmfn"
	"github.com/tko-orchestrator/tko/internal/plugin/supervise"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	if code, is := krmfn.Child(os.Args, os.Stdin, os.Stdout, os.Stderr); is {
		return code
	}
	if err := supervise.Hide(); err != nil { // plugins run as the same user, and must not read the server's memory
		_, _ = fmt.Fprintf(os.Stderr, "tko-server: hide from plugins: %v\n", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
