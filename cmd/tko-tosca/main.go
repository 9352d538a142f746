// The command tko-tosca compiles TOSCA for the server, which starts it where a
// deployment has TOSCA resources. It reads a request on standard input and
// writes a response on standard output, and isn't for people.
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
