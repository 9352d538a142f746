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

// The largest numbers of functions and rooms that a walk passes.
const (
	maxHops  = 8
	maxRooms = 6
)

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

// roomOf returns the room that a folder belongs to: its part of internal, or the folder.
func roomOf(folder string) string {
	parts := strings.Split(folder, "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// What a reader follows through the packages stays short: few functions, in few rooms.
func TestWalksNameFunctionsThatExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	walks := strings.Split(string(text), "\n## Walk of ")[1:]
	if len(walks) != 3 {
		t.Errorf("docs/architecture.md has %d walks, want those of a filter, a deployment and a wave", len(walks))
	}
	for _, walk := range walks {
		title, walk, _ := strings.Cut(walk, "\n")
		walk, _, _ = strings.Cut(walk, "\n## ")
		hops := hop.FindAllStringSubmatch(walk, -1)
		if len(hops) < 3 || len(hops) > maxHops {
			t.Errorf("the walk of %s has %d hops, want at most %d", title, len(hops), maxHops)
		}
		rooms := map[string]bool{}
		for _, h := range hops {
			folder, name := h[1], h[2]
			rooms[roomOf(folder)] = true
			if !functions(t, filepath.Join(root, filepath.FromSlash(folder)))[name] {
				t.Errorf("%s has no function %s", folder, name)
			}
		}
		if len(rooms) > maxRooms {
			t.Errorf("the walk of %s passes %d rooms, want at most %d", title, len(rooms), maxRooms)
		}
	}
}
