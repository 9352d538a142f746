// Command responses writes the files that are made from the types of the responses of the HTTP API. It runs in the root of the
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
	{Path: "internal/webapi/zz_generated_comments.go", Template: "comments.go.tmpl", Data: commentsData},
	{Path: "web/src/schema.ts", Template: "schema.ts.tmpl", Data: typescriptData},
}

func main() { os.Exit(generate.Main(forms, templates)) }
