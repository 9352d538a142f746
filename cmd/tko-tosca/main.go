// Command tko-tosca compiles TOSCA. The server starts it for deployments with TOSCA
// resources. It reads a request on standard input and writes a response on standard
// output; it is not for interactive use.
package main

import (
	"fmt"
	"os"

	"github.com/tko-orchestrator/tko/internal/prepare/tosca/compile"
)

func main() {
	if err := compile.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tko-tosca:", err)
		os.Exit(1)
	}
}
