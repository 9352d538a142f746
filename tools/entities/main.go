// Command entities writes the files that are made from the types of entities. It runs in the root of the
// repository.
package main

import (
	"embed"
	"os"

	"github.com/tko-orchestrator/tko/tools/generate"
)

//go:embed *.tmpl
var templates embed.FS

// forms are the generated files.
var forms = []generate.Form{
	{Path: "internal/webapi/zz_generated_rows.go", Template: "rows.go.tmpl", Data: rowsData},
	{Path: "api/v1alpha1/zz_generated.details.go", Template: "details.go.tmpl", Data: detailsData},
	{Path: "sdk/python/src/tko/_details.py", Template: "details.py.tmpl", Data: detailsData},
}

func main() { os.Exit(generate.Main(forms, templates)) }
