package ansible

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko/test/process"
)

// Each module and plugin is documented, with examples and results.
func TestModulesAreDocumented(t *testing.T) {
	t.Parallel()
	c := &control{t: t, dir: t.TempDir()}
	c.link()
	files, err := filepath.Glob("../../ansible/plugins/modules/*.py")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	args := []string{"--type=module"}
	for _, f := range files {
		args = append(args, "tko.tko."+strings.TrimSuffix(filepath.Base(f), ".py"))
	}
	out, stderr, code := c.run("ansible-doc", args...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, section := range []string{"OPTIONS", "EXAMPLES:", "RETURN VALUES:"} {
		// about_info has no options of its own, but those of the connection
		if n := strings.Count(out, section); n != len(files) {
			t.Errorf("%d of %d modules have %s", n, len(files), section)
		}
	}
	if _, stderr, code := c.run("ansible-doc", "--type=inventory", "tko.tko.sites"); code != 0 || stderr != "" {
		t.Errorf("the inventory plugin: exit code %d: %s", code, stderr)
	}
	groups, err := os.ReadFile("../../ansible/meta/runtime.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".py"); !strings.Contains(string(groups), "- "+name+"\n") {
			t.Errorf("the action group tko lacks the module %s", name)
		}
	}
}

// The collection passes the linters.
func TestCollectionIsFormattedAndChecked(t *testing.T) {
	t.Parallel()
	process.Reads(t, "ansible", "sdk/python", "internal/plugin/callback.py")
	python := filepath.Join(process.Python(t), "bin", "python3")
	for _, args := range [][]string{{"check"}, {"format", "--check"}} {
		args = append([]string{"-m", "ruff", args[0], "--no-cache", "--config=ruff.toml", "../../ansible", "../../internal/plugin/callback.py"}, args[1:]...)
		if out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// pipBootstrap is the script from which ansible-test gets pip for the environments of its
// tests. It would download one, and not from PyPI.
const pipBootstrap = `import sys

sys.path.insert(0, %q)
from pip._internal.cli.main import main

sys.exit(main(["install", *(a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel"))]))
`

// The collection passes all tests of ansible-test sanity.
func TestCollectionPassesSanityTests(t *testing.T) {
	t.Parallel()
	environment := process.Ansible(t)
	packages, err := filepath.Glob(filepath.Join(environment, "lib", "python3.*", "site-packages"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("the folders of packages are %v, %v", packages, err)
	}
	collection := filepath.Join(t.TempDir(), "ansible_collections", "tko", "tko")
	if err := os.CopyFS(collection, os.DirFS("../../ansible")); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(environment, "sanity") // keeps the environments of its tests
	bootstrap := filepath.Join(home, ".ansible", "test", "cache", "get_pip_24_2.py")
	if err := os.MkdirAll(filepath.Dir(bootstrap), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(home, "lock")) // ansible-test makes them without one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bootstrap, fmt.Appendf(nil, pipBootstrap, packages[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(filepath.Base(filepath.Dir(packages[0])), "python")
	cmd := exec.CommandContext(t.Context(), filepath.Join(environment, "bin", "ansible-test"), "sanity", "--lint", "--truncate=0", "--python="+version)
	cmd.Dir = collection
	// On another PATH it may find other versions of Python that don't run.
	cmd.Env = append(os.Environ(), "HOME="+home, "PATH="+filepath.Join(environment, "bin")+":/usr/bin:/bin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []string{"ansible-doc", "import", "pylint", "validate-modules", "yamllint"} {
		if !strings.Contains(string(out), "Running sanity test \""+test+"\"") {
			t.Errorf("the test %s did not run:\n%s", test, out)
		}
	}
	if strings.Contains(string(out), "Skipping") {
		t.Errorf("a test was skipped:\n%s", out)
	}
}

// The license is the only thing that the sanity tests let pass.
func TestSanityTestsIgnoreOnlyTheLicense(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../ansible/tests/sanity/ignore-*.txt")
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) < 2 || fields[1] != "validate-modules:missing-gplv3-license" {
			t.Errorf("%s ignores %q", files[0], line)
		}
	}
}

// Playbooks of the example are valid. Those for AWX need its collection, so only their form
// is checked: each task calls one module of it.
func TestExampleSetsUpAWX(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/ansible/awx.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var plays []struct {
		Tasks []map[string]any `json:"tasks"`
	}
	if err := yaml.Unmarshal(text, &plays); err != nil || len(plays) != 1 {
		t.Fatalf("%d plays: %v", len(plays), err)
	}
	prompts := 0
	for _, task := range plays[0].Tasks {
		modules := 0
		for key, arguments := range task {
			if strings.HasPrefix(key, "awx.awx.") {
				modules++
			}
			if a, ok := arguments.(map[string]any); ok && a["ask_labels_on_launch"] == true && a["ask_variables_on_launch"] == true && a["ask_inventory_on_launch"] == true {
				prompts++
			}
		}
		if modules != 1 {
			t.Errorf("the task %v calls %d modules of AWX", task["name"], modules)
		}
	}
	if prompts != 1 {
		t.Errorf("%d tasks make templates with the prompts that TKO needs, want 1", prompts)
	}
}

// The archive that ansible-galaxy builds installs, and its modules run.
func TestBuiltCollectionRuns(t *testing.T) {
	t.Parallel()
	c := newControl(t)
	collection, err := filepath.Abs("../../ansible")
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := c.run("ansible-galaxy", "collection", "build", "--output-path="+c.dir, collection); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	installed := filepath.Join(c.dir, "installed")
	archives, err := filepath.Glob(filepath.Join(c.dir, "tko-tko-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("archives %v, %v", archives, err)
	}
	if _, stderr, code := c.run("ansible-galaxy", "collection", "install", "--collections-path="+installed, archives[0]); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	c.env = []string{"ANSIBLE_COLLECTIONS_PATH=" + installed}
	c.play(`
- tko.tko.about_info:
  register: result
- ansible.builtin.assert:
    that: result.about.backend is search('SQLite')
`)
}

// What ansible-lint found: the collection has a changelog, the role's variables begin with
// its name, and no failure is ignored without a condition.
func TestCollectionFollowsTheRulesOfAnsibleLint(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("../../ansible/CHANGELOG.md"); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob("../../ansible/roles/*/tasks/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		role := filepath.Base(filepath.Dir(filepath.Dir(file)))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, ok := strings.CutPrefix(strings.TrimSpace(line), "register: ")
			if ok && !strings.HasPrefix(name, role+"_") || strings.Contains(line, "ignore_errors") {
				t.Errorf("%s: %s", file, strings.TrimSpace(line))
			}
		}
	}
	examples, err := filepath.Glob("../../examples/ansible/playbooks/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal(examples, err)
	}
	for _, file := range examples {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\n    namespace:") {
			t.Errorf("%s has a variable with a reserved name", file)
		}
	}
}
