package conventions_test

import (
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tko-orchestrator/tko"

// everything in a row lets its packages import all others.
const everything = "everything"

// A row of the table of packages: the folders that it describes, and the short names
// of those that they may import.
type row struct {
	folders []string
	imports []string
}

var (
	quotedName = regexp.MustCompile("`([^`]+)`")
	tableRow   = regexp.MustCompile(`^\|(.*)\|([^|]*)\|\s*$`)
)

// readTable reads the table whose last column is headed "may import".
func readTable(text string) []row {
	var rows []row
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		m := tableRow.FindStringSubmatch(line)
		switch {
		case m == nil:
			inside = false
		case strings.Contains(strings.ToLower(m[2]), "may import"):
			inside = true
		case inside && !strings.HasPrefix(m[1], "---"):
			first, _, _ := strings.Cut(m[1], "|")
			r := row{}
			for _, name := range quotedName.FindAllStringSubmatch(first, -1) {
				r.folders = append(r.folders, folderOf(name[1]))
			}
			for _, name := range quotedName.FindAllStringSubmatch(m[2], -1) {
				r.imports = append(r.imports, folderOf(name[1]))
			}
			if strings.Contains(m[2], everything) {
				r.imports = append(r.imports, everything)
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// folderOf returns the folder that a name in the table means: "." is the root, and
// the short name of an internal package is that package.
func folderOf(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "/…"), "/")
	switch {
	case name == "*.go", name == "tko":
		return "."
	case strings.Contains(name, "/"):
		return name
	}
	if _, err := os.Stat(filepath.Join("../../internal", name)); err == nil {
		return "internal/" + name
	}
	return name
}

// within returns the longest of the folders that a folder is or lies in; "" if none.
func within(folder string, folders []string) string {
	best := ""
	for _, f := range folders {
		if (folder == f || f != "." && strings.HasPrefix(folder, f+"/")) && len(f) > len(best) {
			best = f
		}
	}
	return best
}

// isTestSupport reports whether a package helps tests only; its name ends with "test".
// Such packages may import all others, and only tests and each other may import them.
func isTestSupport(folder string) bool {
	return strings.HasSuffix(path.Base(folder), "test") || folder == "test" || strings.HasPrefix(folder, "test/")
}

// importsOf returns, by folder, the folders of this module that the code there
// imports, tests left out.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	root, names := repository(t)
	found := map[string]map[string]bool{}
	for _, name := range names {
		top, _, _ := strings.Cut(name, "/")
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") || top == "tools" || top == "examples" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(name)
		if found[folder] == nil {
			found[folder] = map[string]bool{}
		}
		for _, i := range file.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if imported == module {
				found[folder]["."] = true
			} else if rest, ok := strings.CutPrefix(imported, module+"/"); ok {
				found[folder][rest] = true
			}
		}
	}
	sorted := map[string][]string{}
	for folder, imported := range found {
		sorted[folder] = slices.Sorted(maps.Keys(imported))
	}
	return sorted
}

// TestImportsFollowTheTable checks that each import is allowed by the table in
// docs/architecture.md, that each package is in it, and that all it allows is used.
func TestImportsFollowTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := readTable(string(text))
	if len(rows) < 10 {
		t.Fatalf("the table of packages has %d rows: it was not found", len(rows))
	}
	for _, problem := range compare(rows, importsOf(t)) {
		t.Error(problem)
	}
}

// compare returns what differs between the table and the imports of folders.
func compare(rows []row, imports map[string][]string) []string {
	var problems []string
	byFolder := map[string]*row{}
	var folders []string
	for i, r := range rows {
		for _, f := range r.folders {
			byFolder[f] = &rows[i]
			folders = append(folders, f)
		}
	}
	used := map[*row]map[string]bool{}
	for _, folder := range slices.Sorted(maps.Keys(imports)) {
		if isTestSupport(folder) {
			continue
		}
		own := within(folder, folders)
		if own == "" {
			problems = append(problems, folder+": the table in docs/architecture.md has no row for it: add one")
			continue
		}
		r := byFolder[own]
		for _, imported := range imports[folder] {
			allowed := within(imported, r.imports)
			switch {
			case isTestSupport(imported) && !slices.Contains(r.imports, imported):
				problems = append(problems, folder+" imports "+imported+", which is for tests only: move what it needs")
			case allowed != "":
				if used[r] == nil {
					used[r] = map[string]bool{}
				}
				used[r][allowed] = true
			case slices.Contains(r.imports, everything), slices.Contains(r.folders, within(imported, folders)):
			default:
				problems = append(problems, folder+" imports "+imported+": the table in docs/architecture.md doesn't allow it")
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		for _, name := range r.imports {
			if name != everything && !used[r][name] {
				problems = append(problems, strings.Join(r.folders, ", ")+" may import "+name+", and doesn't: take it out of the table in docs/architecture.md")
			}
		}
	}
	return problems
}

func TestForbiddenAndUnusedImportsAreFound(t *testing.T) {
	t.Parallel()
	rows := readTable("| folder | holds | may import (of ours) |\n|---|---|---|\n| `*.go` | a | `krm` |\n| `krm/` | b | nothing |\n| `cmd/…` | c | everything |\n")
	tests := map[string]struct {
		imports map[string][]string
		want    []string
	}{
		"allowed":          {map[string][]string{".": {"krm"}, "krm": nil, "cmd/x": {".", "krm/y"}}, nil},
		"forbidden":        {map[string][]string{".": {"krm"}, "krm": {"."}}, []string{"krm imports ."}},
		"nested":           {map[string][]string{".": {"krm/y"}, "krm/y": {"krm"}}, nil},
		"unused":           {map[string][]string{".": nil}, []string{". may import krm, and doesn't"}},
		"not in the table": {map[string][]string{".": {"krm"}, "other": nil}, []string{"other: the table"}},
		"test support":     {map[string][]string{".": {"krm", "krm/krmtest"}, "krm/krmtest": {"cmd/x"}}, []string{". imports krm/krmtest"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := compare(rows, test.imports)
			if len(problems) != len(test.want) {
				t.Fatalf("the problems are %q, want %q", problems, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(problems[i], want) {
					t.Errorf("the problem is %q, want %q", problems[i], want)
				}
			}
		})
	}
}
