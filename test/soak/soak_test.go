package soak_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/soak"
)

const module = "github.com/tko-orchestrator/tko/"

func TestRoundsAreLongInSoakOnly(t *testing.T) {
	t.Setenv(soak.Variable, "")
	if n := soak.Rounds(t, 3, 50); n != 3 {
		t.Errorf("%d rounds, want the short form", n)
	}
	path := filepath.Join(t.TempDir(), "taken")
	t.Setenv(soak.Variable, path)
	if n := soak.Rounds(t, 3, 50); n != 50 {
		t.Errorf("%d rounds, want the long form", n)
	}
	if taken, err := os.ReadFile(path); err != nil || string(taken) != t.Name()+"\n" {
		t.Errorf("taken are %q, %v", taken, err)
	}
}

// What is in the list runs, and has a long form.
func TestSoakFailsForTestsWithoutALongForm(t *testing.T) {
	process.Reads(t, "test/soak")
	soaked := func(test string) (string, error) {
		list := filepath.Join(t.TempDir(), "searches")
		if err := os.WriteFile(list, []byte("# a comment\n./test/soak/testdata/searches "+test+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "./run.sh", "-vet=off", "-v")
		command.Env = append(os.Environ(), "SEARCHES="+list)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	if out, err := soaked("TestLong"); err != nil || !strings.Contains(out, "7 rounds") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := soaked("TestOther"); err == nil || !strings.Contains(out, "TestOther did not take its long form") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The list is all tests that reach Rounds, through functions and variables of their package and of others.
func TestListHasAllSearches(t *testing.T) {
	process.Reads(t, "test/soak")
	g := readGraph(t, filepath.Join("..", ".."))
	got := []string{}
	for node := range g {
		folder, name, _ := strings.Cut(node, " ")
		if strings.HasPrefix(name, "Test") && !strings.HasPrefix(folder, "test/soak") && g.reaches(node, map[string]bool{}) {
			got = append(got, "./"+node)
		}
	}
	slices.Sort(got)
	text, err := os.ReadFile("searches")
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
	if len(want) == 0 {
		t.Error("the list is empty")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("test/soak/searches (-) and the tests that call soak.Rounds (+) differ:\n%s", diff)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil || !strings.Contains(string(makefile), "\ttest/soak/run.sh") && !strings.Contains(string(makefile), " test/soak/run.sh") {
		t.Errorf("make soak doesn't run the list: %v", err)
	}
}

// A graph has what functions, methods and variables mention, by folder and name; names of methods begin with a dot.
type graph map[string]map[string]bool

const target = "test/soak Rounds"

func (g graph) reaches(node string, seen map[string]bool) bool {
	if node == target {
		return true
	}
	if seen[node] {
		return false
	}
	seen[node] = true
	return slices.ContainsFunc(slices.Collect(maps.Keys(g[node])), func(next string) bool { return g.reaches(next, seen) })
}

// readGraph reads the files of tests, and of packages that help tests.
func readGraph(t *testing.T, root string) graph {
	t.Helper()
	g := graph{}
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".git")) {
			return fs.SkipDir
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil || filepath.Ext(path) != ".go" || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(folder, "test") && !strings.HasPrefix(folder, "test/") {
			return err
		}
		return g.read(path, folder)
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g graph) read(path, folder string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := map[string]string{}
	for _, i := range file.Imports {
		full, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		name := filepath.Base(full)
		if i.Name != nil {
			name = i.Name.Name
		}
		if inside, ok := strings.CutPrefix(full, module); ok {
			imports[name] = inside
		}
	}
	add := func(names []*ast.Ident, body ast.Node) {
		mentions := map[string]bool{}
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && imports[x.Name] != "" {
					mentions[imports[x.Name]+" "+n.Sel.Name] = true
					return false
				}
				mentions[folder+" ."+n.Sel.Name] = true
				ast.Inspect(n.X, visit)
				return false
			case *ast.Ident:
				mentions[folder+" "+n.Name] = true
			}
			return true
		}
		ast.Inspect(body, visit)
		for _, name := range names {
			node := folder + " " + name.Name
			if g[node] == nil {
				g[node] = map[string]bool{}
			}
			maps.Copy(g[node], mentions)
		}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			name := *d.Name
			if d.Recv != nil {
				name.Name = "." + name.Name
			}
			if d.Body != nil {
				add([]*ast.Ident{&name}, d.Body)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					add(v.Names, v)
				}
			}
		}
	}
	return nil
}
