package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxHops is the largest number of functions that a filter may pass from the command
// line to SQL.
const maxHops = 8

var hop = regexp.MustCompile("(?m)^\\| \\d+ \\| `([^`]+)` \\| `([^`]+)` \\|")

// functions returns the functions in the Go files of a folder, methods as TYPE.NAME.
func functions(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				found[nameOf(f)] = true
			}
		}
	}
	return found
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

func TestWalkOfAFilterNamesFunctionsThatExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, ok := strings.Cut(string(text), "\n## Walk of a filter\n")
	if !ok {
		t.Fatal("docs/architecture.md has no section: Walk of a filter")
	}
	walk, _, _ = strings.Cut(walk, "\n## ")
	hops := hop.FindAllStringSubmatch(walk, -1)
	if len(hops) < 3 || len(hops) > maxHops {
		t.Errorf("the walk has %d hops, want at most %d", len(hops), maxHops)
	}
	for _, h := range hops {
		if folder, name := h[1], h[2]; !functions(t, filepath.Join(root, filepath.FromSlash(folder)))[name] {
			t.Errorf("%s has no function %s", folder, name)
		}
	}
}
