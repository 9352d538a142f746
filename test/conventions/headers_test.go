package conventions_test

import (
	"go/ast"
	"go/token"
	"testing"
)

// The header of an if statement may declare names of its own, and assign an error. Other assignments, whose values are used
// after the statement, are lines of their own: a reader doesn't look for them in a condition.
func TestHeadersOfConditionsAssignOnlyErrors(t *testing.T) {
	t.Parallel()
	found := 0
	eachFile(t, func(file string, _ bool, syntax *ast.File) {
		if ast.IsGenerated(syntax) {
			return
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			condition, ok := n.(*ast.IfStmt)
			if !ok {
				return true
			}
			found++
			if name := assigned(condition.Init); name != "" && name != "err" {
				t.Errorf("%s: the header of an if statement assigns %s: assign it in a line of its own", file, name)
			}
			return true
		})
	})
	if found < 10_000 {
		t.Errorf("%d if statements were found, want at least 10000", found)
	}
}

// assigned returns the last name that a statement assigns without declaring it, "" if there is none.
func assigned(s ast.Stmt) string {
	switch s := s.(type) {
	case *ast.IncDecStmt:
		return "a counter"
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return ""
		}
		last := s.Lhs[len(s.Lhs)-1]
		if name, ok := last.(*ast.Ident); ok {
			return name.Name
		}
		return "a field or an element"
	}
	return ""
}
