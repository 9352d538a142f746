package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A comment of a declaration that begins with a name begins with that of its declaration: after
// a new name was given, the comment follows. Sentences begin with a capital letter.
func TestCommentsNameTheirDeclaration(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`^[a-z][\w.]*`)
	declared := 0
	check := func(file string, doc *ast.CommentGroup, name string) {
		declared++
		if word := strings.TrimRight(begins.FindString(doc.Text()), "."); word != "" && word != name && !isTest.MatchString(name) {
			t.Errorf("%s: the comment of %s begins with %q: begin it with the name, or with a capital letter", file, name, word)
		}
		if word, _, _ := strings.Cut(doc.Text(), " "); word != name && strings.EqualFold(word, name) && strings.ToLower(word[1:]) != word[1:] {
			t.Errorf("%s: the comment of %s begins with %q: write the name as it is declared", file, name, word)
		}
	}
	for file := range strings.FieldsSeq(string(list)) {
		if strings.HasSuffix(file, ".pb.go") || strings.Contains(file, "zz_generated") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range tree.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				check(file, d.Doc, d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if len(d.Specs) > 1 || d.Lparen.IsValid() {
						continue // comments of groups are about all of them
					}
					switch s := spec.(type) {
					case *ast.TypeSpec:
						check(file, d.Doc, s.Name.Name)
					case *ast.ValueSpec:
						check(file, d.Doc, s.Names[0].Name)
					}
				}
			}
		}
	}
	if declared < 10_000 {
		t.Errorf("%d declarations were found, want at least 10000", declared)
	}
}

// isTest matches the names of tests, whose comments may begin with the name of a tool.
var isTest = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
