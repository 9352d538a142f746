package python

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

var sdk = func() string {
	dir, err := filepath.Abs("../../sdk/python")
	if err != nil {
		panic(err)
	}
	return dir
}()

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// python returns a command in the tests' Python environment.
func python(t testing.TB, arguments ...string) *exec.Cmd {
	t.Helper()
	env := process.Python(t)
	process.Reads(t, "sdk/python", "proto", "examples")
	cmd := exec.CommandContext(t.Context(), filepath.Join(env, "bin", "python3"), arguments...)
	cmd.Dir = sdk
	cmd.Env = append(os.Environ(), "PYTHONPATH="+process.PythonSDK(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
}

// The SDK's own tests run against a real server.
func TestSDKPassesItsTests(t *testing.T) {
	t.Parallel()
	cmd := python(t, "-m", "pytest")
	cmd.Env = append(cmd.Env, "TKO_TEST_HOST="+process.StartServer(t, "--roles=data", "--store=sqlite::memory:").GRPC)
	run(t, cmd)
}

func TestSDKTypeChecks(t *testing.T) {
	t.Parallel()
	run(t, python(t, "-m", "mypy"))
}

func TestSDKPassesLinter(t *testing.T) {
	t.Parallel()
	run(t, python(t, "-m", "ruff", "check", "--no-cache", "."))
	run(t, python(t, "-m", "ruff", "format", "--no-cache", "--check", "."))
}

// The types of a plugin that uses the SDK are checked too: the package exports its
// types.
func TestPluginsTypeCheckAgainstSDK(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "user.py")
	right := `import tko

def prepare(request: tko.PrepareRequest) -> bool:
    with request.client(timeout=5) as client:
        sites: list[str] = [site.site_id for site in client.list_sites()]
    request.target["spec"] = {"sites": sites, "text": tko.yaml.load("a")}
    return True

tko.run(prepare=prepare)
`
	for name, test := range map[string]struct{ code, want string }{
		"right":           {right, ""},
		"a wrong request": {strings.Replace(right, "PrepareRequest", "ScheduleRequest", 1), "incompatible type"},
		"a wrong answer":  {strings.Replace(right, "list[str]", "list[int]", 1), "List comprehension has incompatible type"},
	} {
		if err := os.WriteFile(file, []byte(test.code), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := python(t, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=/dev/null", file).CombinedOutput()
		if (err == nil) != (test.want == "") || !bytes.Contains(out, []byte(test.want)) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The generated code matches the protocol.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(sdk, "generate.sh"), dir)
	cmd.Env = append(os.Environ(), "PYTHON="+filepath.Join(process.Python(t), "bin", "python3"))
	run(t, cmd)
	for _, name := range []string{"tko_pb2.py", "tko_pb2.pyi", "access_pb2.py", "access_pb2.pyi", "admin_pb2.py", "admin_pb2.pyi"} {
		want, err := os.ReadFile(filepath.Join(dir, "tko", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(sdk, "src", "tko", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, got) {
			t.Errorf("%s differs from proto/tko: run sdk/python/generate.sh", name)
		}
	}
}

// The package that pip installs is complete.
func TestInstalledPackageWorks(t *testing.T) {
	t.Parallel()
	source, target := filepath.Join(t.TempDir(), "sdk"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS(sdk)); err != nil { // the build writes into the source folder
		t.Fatal(err)
	}
	run(t, python(t, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", target, source))
	cmd := python(t, "-c", "import tko, tko.client, tko.ansible, tko.testing; tko.Client, tko.tools.helm, tko.yaml; print(tko.__file__)")
	cmd.Env = append(cmd.Env, "PYTHONPATH="+target)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), target) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{"py.typed", "tko_pb2.pyi"} {
		if _, err := os.Stat(filepath.Join(target, "tko", name)); err != nil {
			t.Error(err)
		}
	}
	// The name tko belongs to another project in package indexes.
	if found, err := filepath.Glob(filepath.Join(target, "*.dist-info")); err != nil || len(found) != 1 || !strings.HasPrefix(filepath.Base(found[0]), "tko_orchestrator-") {
		t.Errorf("the distributions are %v, %v: want tko_orchestrator", found, err)
	}
}
