package main

import (
	"flag"
	"testing"

	"github.com/tko-orchestrator/tko/tools/generate"
)

var update = flag.Bool("update", false, "rewrite the generated files")

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	generate.Test(t, forms, templates, *update)
}
