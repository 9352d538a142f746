// Command entities writes the files that are made from the types of entities and of responses
// of the HTTP API, in the current folder: the root of the repository. Each form has a file
// here, and a template next to it. There are no options: what doesn't fit a form is written by
// hand next to the generated file.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"text/template"
)

// A form is one generated file.
type form struct {
	path     string
	template string
	data     func(*source) (any, error)
}

// forms are all generated files.
var forms = []form{
	{"internal/webapi/zz_generated_comments.go", "comments.go.tmpl", commentsData},
	{"web/src/schema.ts", "schema.ts.tmpl", typescriptData},
}

//go:embed *.tmpl
var templates embed.FS

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "entities:", err)
		os.Exit(1)
	}
}

// run writes all files below the root of the repository.
func run(root string) error {
	files, err := render(root)
	if err != nil {
		return err
	}
	for path, data := range files {
		if err := os.WriteFile(root+"/"+path, data, 0o644); err != nil { //nolint:gosec // source code
			return err
		}
	}
	return nil
}

// render returns the content of each generated file.
func render(root string) (map[string][]byte, error) {
	src, err := readSource(root)
	if err != nil {
		return nil, err
	}
	all, err := template.ParseFS(templates, "*.tmpl")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range forms {
		data, err := f.data(src)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		var b bytes.Buffer
		if err := all.ExecuteTemplate(&b, f.template, data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if files[f.path], err = formatted(f.path, b.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return files, nil
}
