package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile("`(Test\\w+)`")
	namedFile = regexp.MustCompile("`((?:internal|test)/[\\w/.]+)`")
)

// The page about the gate names a test for each rule, and no test or file that isn't there.
func TestGatePageNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	page := Pages(t)["docs/gate.md"]
	tests := testsOfTheTree(t)
	if len(tests) < 1000 {
		t.Fatalf("only %d tests were found", len(tests))
	}
	for _, name := range namedTest.FindAllStringSubmatch(page, -1) {
		if !tests[name[1]] {
			t.Errorf("docs/gate.md: there is no test %s", name[1])
		}
	}
	for _, name := range namedFile.FindAllStringSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join(Root(), name[1])); err != nil {
			t.Errorf("docs/gate.md: there is no file %s", name[1])
		}
	}
	rows := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") || strings.HasSuffix(strings.TrimSpace(cells[len(cells)-2]), "test") {
			continue
		}
		rows++
		if !namedTest.MatchString(cells[len(cells)-2]) {
			t.Errorf("docs/gate.md: no test for %s", cells[1])
		}
	}
	if rows < 50 {
		t.Errorf("the page has %d rows", rows)
	}
}

// testsOfTheTree returns the names of all tests.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(Root(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != Root() && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
