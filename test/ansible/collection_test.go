package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
