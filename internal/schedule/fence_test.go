package schedule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/schedule/place"
)

// Each package that has a target asks the fence before it changes something, so that a stop
// holds at each kind of place, also at one that is added later. What each of them asks, and when,
// its own tests show.
func TestEachTargetAsksTheFence(t *testing.T) {
	t.Parallel()
	schedules, asks := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		folder := filepath.ToSlash(filepath.Dir(path))
		if err != nil || d.IsDir() || folder == "." || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && n.Name.Name == "Schedule" {
					schedules[folder] = true
				}
			case *ast.SelectorExpr:
				if on, ok := n.X.(*ast.Ident); ok && on.Name == "fence" && n.Sel.Name == "Check" {
					asks[folder] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range schedules {
		if !asks[folder] {
			t.Errorf("the target in internal/schedule/%s doesn't ask the fence: call fence.Check before each change, and test that a stop holds it", folder)
		}
	}
	if len(schedules) != len(place.All) {
		t.Errorf("%d packages have a target, and there are %d kinds of places", len(schedules), len(place.All))
	}
}
