package main

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated files")

// The generated files are those that the types of today make.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	const root = "../.."
	if *update {
		if err := run(root); err != nil {
			t.Fatal(err)
		}
	}
	files, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(root + "/" + path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date (%v): rewrite it with make generate, or go test ./tools/entities -update", path, err)
		}
	}
}
