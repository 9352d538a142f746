package cli

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tko-orchestrator/tko/test/process"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

func TestCommandMatchesScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	bin := filepath.Dir(process.Build(t, "tko")) + string(os.PathListSeparator) + filepath.Dir(process.Build(t, "tko-agent"))
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			server := process.StartServer(t, append([]string{"--store=sqlite::memory:"}, serverFlags(t, script, folder)...)...)
			testscript.Run(t, testscript.Params{
				Files:         []string{script},
				UpdateScripts: *update,
				Setup: func(env *testscript.Env) error {
					env.Setenv("FOLDER", folder)
					env.Setenv("WEB", server.Web)
					env.Setenv("GORACE", os.Getenv("GORACE")) // how long programs sleep at their end
					env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
					for _, setting := range server.Env() {
						name, value, _ := strings.Cut(setting, "=")
						env.Setenv(name, value)
					}
					return nil
				},
			})
		})
	}
}

// serverFlags returns the flags for a script's server, which the script's first line
// may list. $FOLDER is a folder of server and script.
func serverFlags(t *testing.T, script, folder string) []string {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	flags, _ := strings.CutPrefix(first, "# server: ")
	if flags == first {
		return nil
	}
	return strings.Fields(strings.ReplaceAll(flags, "$FOLDER", folder))
}

// The client must not link packages that only servers need, to stay small.
func TestClientLinksNoServerPackages(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "../../cmd/tko").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, heavy := range []string{
			"modernc.org/", "github.com/jackc/", "k8s.io/", "helm.sh/", "github.com/pressly/",
			"github.com/tko-orchestrator/tko/internal/catalog", "github.com/tko-orchestrator/tko/internal/store", "github.com/santhosh-tekuri/",
		} {
			if strings.HasPrefix(dep, heavy) {
				t.Errorf("tko links %s, which only servers need", dep)
			}
		}
	}
}
