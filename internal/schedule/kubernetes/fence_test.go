package kubernetes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// Each function that changes something in a cluster asks the fence first, so that a new one
// can't be forgotten.
func TestEachChangeOfAClusterAsksTheFence(t *testing.T) {
	changes := []string{"Apply", "Delete", "Create", "Patch", "Update", "Deploy", "Uninstall", "Rollback", "Test"}
	exempt := map[string]string{
		"writeInventory": "what was begun must be recorded",
		"makeNamespace":  "of an inventory, or of a release that the fence let begin",
		"creatable":      "a dry run",
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			asks, writes := false, ""
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				ctx, _ := call.Args[0].(*ast.Ident)
				if on, ok := method.X.(*ast.Ident); ok && on.Name == "fence" && method.Sel.Name == "Check" {
					asks = true
				}
				if ctx != nil && (ctx.Name == "ctx" || ctx.Name == "limited") && slices.Contains(changes, method.Sel.Name) {
					writes = method.Sel.Name
				}
				return true
			})
			if writes == "" {
				continue
			}
			found++
			if _, ok := exempt[f.Name.Name]; !asks && !ok {
				t.Errorf("%s: %s calls %s and doesn't ask the fence", entry.Name(), f.Name.Name, writes)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d functions that change a cluster were found: is the test still right?", found)
	}
}
