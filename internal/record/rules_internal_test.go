package record

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A restore without rights must know of each kind of rule whether it is one: a new kind
// would be dropped, or give rights, unnoticed.
func TestEachKindOfStoredRuleIsARightOrNot(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				rest, ok := strings.CutPrefix(name.Name, "Rule")
				if !ok || rest == "" || rest[0] < 'A' || rest[0] > 'Z' || i >= len(spec.Values) {
					continue
				}
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
					kind, _ := strconv.Unquote(value.Value)
					kinds[kind] = true
				}
			}
			return true
		})
	}
	for kind := range kinds {
		if _, ok := isRight[kind]; !ok {
			t.Errorf("rules of the kind %q: state in isRight whether they are rights of clients", kind)
		}
	}
	if len(kinds) < 6 || len(kinds) != len(isRight) {
		t.Errorf("the package has the kinds %v, and isRight %v", kinds, isRight)
	}
}
