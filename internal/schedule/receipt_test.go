package schedule_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Conditions of sites and deployments are made in one function, which makes Scheduled and
// Healthy True only with receipts; and only targets and the run of a plugin make receipts.
// A new place must be a target, or go through that function.
func TestConditionsAreMadeInOnePlaceAndReceiptsByTargets(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"tko.Condition{}":  {"plan.go ifNew", "removal.go cleanUp"}, // that of CleanedUp alone
		"SetConditions":    {"schedule.go write"},
		"certified":        {"plan.go ifNew"},
		"report.Receipt{}": {"report/report.go attest"},
		"Attest": {
			"kubernetes/report.go report", "osm/target.go report", "pull.go Schedule", "schedule.go runPlugin",
		},
		"AttestSite": {
			"kubernetes/report.go report", "osm/target.go report", "pull.go Schedule", "schedule.go runPlugin",
		},
	}
	got := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			in, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			found := map[string]bool{}
			ast.Inspect(in, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					name := nameOf(n.Type)
					if name == "Receipt" { // in its own package
						name = "report.Receipt"
					}
					if len(n.Elts) > 0 {
						found[name+"{}"] = true
					}
				case *ast.CallExpr:
					name := nameOf(n.Fun)
					found[name[strings.LastIndex(name, ".")+1:]] = true
				}
				return true
			})
			for what := range want {
				if found[what] {
					got[what] = append(got[what], filepath.ToSlash(path)+" "+in.Name.Name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// nameOf returns a name, or one that a package or a value qualifies; "" of anything else.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.X) + "." + e.Sel.Name
	}
	return ""
}
