// Command tko-server serves TKO: the data controller, the preparer and the
// meta-scheduler, all in one process or any set of them.
package main

import (
	"os"

	"github.com/tko-orchestrator/tko/cmd/internal/tkoserver"
)

func main() { os.Exit(tkoserver.Main(tkoserver.Program{Name: "tko-server"})) }
