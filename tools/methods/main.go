// Command methods writes the files that are made from the table of methods of package grpcapi.
// It runs in the root of the repository.
package main

import (
	"embed"
	"maps"
	"os"
	"slices"

	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/tools/generate"
)

//go:embed *.tmpl
var templates embed.FS

// forms are the generated files.
var forms = []generate.Form{
	{Path: "client/zz_generated_methods.go", Template: "client.go.tmpl", Data: againData},
	{Path: "internal/grpcapi/zz_generated_handlers.go", Template: "handlers.go.tmpl", Data: plainData},
	{Path: "client/zz_generated_calls.go", Template: "calls.go.tmpl", Data: plainData},
	{Path: "internal/wire/zz_generated_pairs.go", Template: "pairs.go.tmpl", Data: madePairs},
	{Path: "docs/methods.md", Template: "methods.md.tmpl", Data: referenceData},
}

func main() { os.Exit(generate.Main(forms, templates)) }

// againData returns the full names of the methods that clients may call again.
func againData(*generate.Source) (any, error) {
	var names []string
	rights := grpcapi.Rights()
	for _, name := range slices.Sorted(maps.Keys(rights)) {
		if rights[name].Again {
			names = append(names, name)
		}
	}
	return names, nil
}
