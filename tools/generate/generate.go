// Package generate writes source code that is made from types. Each form, one generated file, has
// a function that returns its data, and a template. There are no options: what doesn't fit a
// form is written by hand next to the generated file.
package generate

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"text/template"
)

// A Form is one generated file.
type Form struct {
	Path     string // from the root of the repository
	Template string // name of its file
	Data     func(*Source) (any, error)
}

// Main writes the files of the forms below the current folder, which is the root of the
// repository, and returns the exit code.
func Main(forms []Form, templates fs.FS) int {
	if err := write(".", forms, templates); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		return 1
	}
	return 0
}

// Test checks that the files of the forms are those that the types of today make. With update
// it writes them.
func Test(t *testing.T, forms []Form, templates fs.FS, update bool) {
	t.Helper()
	const root = "../.."
	if update {
		if err := write(root, forms, templates); err != nil {
			t.Fatal(err)
		}
	}
	files, err := render(root, forms, templates)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(root + "/" + path); err != nil || !bytes.Equal(got, want) { //nolint:gosec // paths of this repository
			t.Errorf("%s is not up to date (%v): rewrite it with make generate, or go test -update in this folder", path, err)
		}
	}
}

func write(root string, forms []Form, templates fs.FS) error {
	files, err := render(root, forms, templates)
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

// render returns the content of each file.
func render(root string, forms []Form, templates fs.FS) (map[string][]byte, error) {
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
		data, err := f.Data(src)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		var b bytes.Buffer
		if err := all.ExecuteTemplate(&b, f.Template, data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if files[f.Path], err = formatted(f.Path, b.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return files, nil
}
