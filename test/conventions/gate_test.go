package conventions_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Writes of entities pass one gate: catalog.gate makes the only value that stores commit.
// It is called in one function, and so is Commit. What the compiler can't check, this file
// does: a new call of either fails here.

// eachFile calls do for each file of Go with its path and whether only tests use it.
func eachFile(t *testing.T, do func(file string, forTests bool, syntax *ast.File)) {
	t.Helper()
	root := "../.."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "node_modules", "testdata", "tools"}, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(rel))
		do(filepath.ToSlash(rel), strings.HasSuffix(name, "_test.go") || strings.HasPrefix(folder, "test/") || strings.HasSuffix(folder, "test"), syntax)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachCall calls do for the name of each called function or method of a file, with that of
// the function that calls it.
func eachCall(syntax *ast.File, do func(caller, called string)) {
	for _, d := range syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch called := n.Fun.(type) {
				case *ast.Ident:
					do(f.Name.Name, called.Name)
				case *ast.SelectorExpr:
					name := called.Sel.Name
					if x, ok := called.X.(*ast.Ident); ok && x.Name == "record" && name == "Gate" {
						name = "record.Gate"
					}
					if x, ok := called.X.(*ast.SelectorExpr); ok && x.Sel.Name == "rights" && name == "Commit" {
						name = "rights.Commit"
					}
					do(f.Name.Name, name)
				}
			case *ast.CompositeLit:
				if named, ok := n.Type.(*ast.Ident); ok && named.Name == "Gated" {
					do(f.Name.Name, "Gated{}")
				}
			}
			return true
		})
	}
}

// roomsWithStores are the packages of the catalog that hold a store.
var roomsWithStores = []string{
	"internal/catalog/", "internal/gate/", "internal/hold/", "internal/rights/", "internal/rollout/service/", "internal/history/", "internal/source/", "internal/enrollment/", "internal/changelog/",
}

func TestWritesPassOneGate(t *testing.T) {
	t.Parallel()
	found, gated := map[string]int{}, map[string]int{}
	eachFile(t, func(file string, forTests bool, syntax *ast.File) {
		inCatalog := slices.ContainsFunc(roomsWithStores, func(room string) bool { return strings.HasPrefix(file, room) }) && !forTests
		inRecord := strings.HasPrefix(file, "internal/record/")
		eachCall(syntax, func(caller, called string) {
			switch {
			case (called == "Ungated" || called == "UngatedReach") && !forTests:
				t.Errorf("%s: %s writes past the gate: only tests may; use rights.Authorizer.Commit", file, caller)
			case called == "record.Gate" || called == "Gate" && inRecord:
				gated[caller]++
				if inCatalog && caller == "CommitGated" || inRecord && slices.Contains([]string{"Ungated", "UngatedReach"}, caller) {
					return
				}
				t.Errorf("%s: %s makes a value that stores commit: rights.Authorizer.Commit alone decides how writes are counted", file, caller)
			case called == "Gated{}" && caller != "Gate":
				t.Errorf("%s: %s makes a value that stores commit: call rights.Authorizer.Commit", file, caller)
			case called == "Commit" && inCatalog:
				found[caller]++
				if caller != "CommitGated" {
					t.Errorf("%s: %s commits past the gate: call rights.Authorizer.Commit", file, caller)
				}
			case called == "CommitGated" && caller != "commit":
				t.Errorf("%s: %s commits without the replacements that its writes require: call rights.Authorizer.Commit", file, caller)
			}
		})
	})
	if gated["CommitGated"] != 1 {
		t.Errorf("the gate makes what stores commit in %d places, want one", gated["CommitGated"])
	}
	if found["CommitGated"] != 1 {
		t.Errorf("the gate commits in %d places, want one", found["CommitGated"])
	}
}

// storeWrites are the methods of stores that write, other than Commit, and why each needs
// no gate. A method that changes entities must take a record.Gated.
var storeWrites = map[string]string{
	"StartModification": "a token", "CancelModification": "a token", "BreakModification": "a token",
	"ClaimWork": "a claim", "RenewWork": "a claim", "FinishWork": "a claim", "EnqueueWork": "work",
	"SaveSource": "what a controller knows", "ApproveSource": "an approval", "ForgetSource": "what a controller knows",
	"SaveTargetState": "what a controller knows", "ChangeAccess": "rules", "Audit": "the audit log", "SaveAuditSink": "the audit log", "HoldNotifier": "a claim", "SaveSubscription": "what a controller knows", "TrimAudit": "the audit log",
	"WriteRolloutPlan": "a plan", "Collect": "history", "ReleaseHolds": "work", "Close": "the store",
}

// storeReads are the methods of stores that write nothing.
var storeReads = strings.Fields(`MaxStep Get Revision Revisions List Descendants Derivation Epoch GetAt Past PositionAt HistorySize History Modification
	Modifications WorkClaim WorkOf QueueStatistics FailingWork WorkSignal Source Sources TargetState Changes Head Signal AccessVersion Access Audited AuditedSince AuditSink Subscriptions Backup Holds Fence Backend
	Reached Tally BeforeNewest ReservedOrigins ApartFlights RolloutStates RolloutSummary RolloutView RolloutCommandView RolloutRows RolloutPlan RolloutEvidence`)

func TestEachMethodOfStoresThatWritesEntitiesTakesWhatTheGateMakes(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("../../internal/record")
	if err != nil {
		t.Fatal(err)
	}
	interfaces := map[string]*ast.InterfaceType{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../internal/record", e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if i, ok := spec.Type.(*ast.InterfaceType); ok {
					interfaces[spec.Name.Name] = i
				}
			}
			return true
		})
	}
	known := map[string]bool{}
	var check func(name string)
	check = func(name string) {
		i := interfaces[name]
		if i == nil {
			t.Errorf("there is no interface %s in internal/record", name)
			return
		}
		for _, m := range i.Methods.List {
			if embedded, ok := m.Type.(*ast.Ident); ok {
				check(embedded.Name)
				continue
			}
			method := m.Names[0].Name
			known[method] = true
			if method == "Commit" {
				params := m.Type.(*ast.FuncType).Params.List
				if last, ok := params[len(params)-1].Type.(*ast.Ident); !ok || last.Name != "Gated" {
					t.Error("Commit takes something else than a Gated")
				}
				continue
			}
			if storeWrites[method] == "" && !slices.Contains(storeReads, method) {
				t.Errorf("the method %s of stores is new: if it changes entities, it must take a Gated; otherwise add it to this test", method)
			}
		}
	}
	check("Store")
	for method := range storeWrites {
		if !known[method] {
			t.Errorf("stores have no method %s: remove it from this test", method)
		}
	}
	for _, method := range storeReads {
		if !known[method] {
			t.Errorf("stores have no method %s: remove it from this test", method)
		}
	}
}

// What users try first, and what measures TKO, runs with the limits that users have.
func TestDemoAndBenchesRunWithTheDefaultLimits(t *testing.T) {
	t.Parallel()
	read := 0
	for _, folder := range []string{"cmd/tko-demo", "internal/demo", "bench", "cmd/tko-bench", "examples"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".go", ".sh", ".yaml", ".md"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			read++
			for _, setting := range []string{"reach-sites", "reach-created", "reach-limits", "reach-original", "confirm-above", "ReachLimits{", "ConfirmAbove:", "topology-depth"} {
				if strings.Contains(string(text), setting) {
					t.Errorf("%s sets %s: use the default limits, and consent", path, setting)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 50 {
		t.Errorf("only %d files were read", read)
	}
}
