package conventions_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// The most parameters of a function in addition to its context, and the number of functions that have so many: it may only shrink.
const (
	maxParameters = 5
	withMost      = 80
)

// The interfaces of Kubernetes and gRPC ask for more.
var otherInterfaces = []string{"internal/kubeapi/subresource.go: Update", "internal/kubeapi/storage.go: Update", "internal/store/spanner/certain.go: noteCommits"}

// A reader who sees a call with six values doesn't know which is which: what belongs together has a type.
func TestFunctionsHaveFewParameters(t *testing.T) {
	t.Parallel()
	found, most := 0, 0
	eachFile(t, func(file string, test bool, syntax *ast.File) {
		if test || strings.HasPrefix(file, "test/") || ast.IsGenerated(syntax) {
			return
		}
		for _, declaration := range syntax.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			found++
			n := parameters(f.Type)
			if n == maxParameters {
				most++
			}
			name := file + ": " + f.Name.Name
			if n > maxParameters && !slices.Contains(otherInterfaces, name) {
				t.Errorf("%s has %d parameters in addition to its context, want at most %d: give those that belong together a type", name, n, maxParameters)
			}
		}
	})
	if most > withMost {
		t.Errorf("%d functions have %d parameters, want at most %d", most, maxParameters, withMost)
	}
	if most < withMost {
		t.Errorf("only %d functions have %d parameters: lower the number in this test to it", most, maxParameters)
	}
	if found < 8_000 {
		t.Errorf("%d functions were found, want at least 8000", found)
	}
}

// parameters returns the number of a function's parameters in addition to its context.
func parameters(f *ast.FuncType) int {
	n := 0
	for _, p := range f.Params.List {
		if s, ok := p.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" {
			continue
		}
		n += max(1, len(p.Names))
	}
	return n
}
