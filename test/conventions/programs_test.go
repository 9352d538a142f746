package conventions_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A program is a row of the table of programs: its folder, and the beginnings of the
// paths of packages that it must not contain.
type program struct {
	folder string
	not    []string
}

// readPrograms reads the table whose last column is headed "must not contain".
func readPrograms(text string) []program {
	var all []program
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		m := tableRow.FindStringSubmatch(line)
		switch {
		case m == nil:
			inside = false
		case strings.Contains(m[2], "must not contain"):
			inside = true
		case inside && !strings.HasPrefix(m[1], "---"):
			first, _, _ := strings.Cut(m[1], "|")
			name := quotedName.FindStringSubmatch(first)
			if name == nil {
				continue
			}
			p := program{folder: name[1]}
			for _, path := range quotedName.FindAllStringSubmatch(m[2], -1) {
				p.not = append(p.not, path[1])
			}
			all = append(all, p)
		}
	}
	return all
}

// contained returns the packages that must not be in a program, and are.
func contained(packages, not []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(name string) bool {
		return !slices.ContainsFunc(not, func(path string) bool { return name == path || strings.HasPrefix(name, path+"/") })
	})
}

// TestProgramsDontContainWhatOthersAreFor checks the table of programs in
// docs/architecture.md: a single import can double the size of a program, and the
// time to build it.
func TestProgramsDontContainWhatOthersAreFor(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := readPrograms(string(text))
	folders, err := os.ReadDir("../../cmd")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if name := "cmd/" + folder.Name(); name != "cmd/internal" && !slices.ContainsFunc(programs, func(p program) bool { return p.folder == name }) {
			t.Errorf("the table of programs in docs/architecture.md has no row for %s: add one", name)
		}
	}
	for _, p := range programs {
		if len(p.not) == 0 {
			continue
		}
		list := exec.Command("go", "list", "-deps", "./"+p.folder)
		list.Dir = "../.."
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%s: %v", p.folder, err)
		}
		if found := contained(strings.Fields(string(out)), p.not); len(found) > 0 {
			t.Errorf("%s contains %d packages that it must not contain, such as %s: move what needs them behind an interface, or to another program (go list -deps ./%s; go mod why)",
				p.folder, len(found), found[0], p.folder)
		}
	}
}

func TestForbiddenPackagesOfProgramsAreFound(t *testing.T) {
	t.Parallel()
	programs := readPrograms("| program | contents | must not contain |\n|---|---|---|\n| `cmd/x` | c | `k8s.io/client-go`, `helm.sh` |\n| `cmd/y` | d | |\n")
	if len(programs) != 2 || programs[0].folder != "cmd/x" || len(programs[1].not) != 0 {
		t.Fatalf("the programs are %+v", programs)
	}
	found := contained([]string{"fmt", "k8s.io/client-go/rest", "k8s.io/client-gone", "helm.sh/helm/v4"}, programs[0].not)
	if !slices.Equal(found, []string{"k8s.io/client-go/rest", "helm.sh/helm/v4"}) {
		t.Errorf("found %q", found)
	}
}
