package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/isolate"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// playbooks returns a Runner of playbooks below a folder with these files.
func playbooks(t *testing.T, isolation *isolate.Isolation, files map[string]string) (*plugin.Runner, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := plugin.New(plugin.Options{
		Programs: []string{dir}, PythonEnv: process.Ansible(t), Dir: t.TempDir(), Isolation: isolation,
		PrepareTimeout: 5 * time.Minute, GRPC: plugin.GRPCAddress{Address: "::1", Port: 50050},
	})
	return r, dir
}

func playbookPlugin(typ, path string, properties map[string]string) tko.Plugin {
	return tko.Plugin{Type: typ, Name: "p", Executor: tko.ExecutorAnsible, Arguments: []string{"playbook:" + path}, Properties: properties}
}

const preparing = `
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_vars: more.yaml
    - ansible.builtin.set_stats:
        data:
          plugin_output:
            prepared: true
            package: "{{ plugin.deploymentPackage + [config] }}"
      vars:
        config:
          apiVersion: v1
          kind: ConfigMap
          metadata: {name: "{{ plugin.deploymentId }}"}
          data: {region: "{{ region }}", more: "{{ more }}", home: "{{ lookup('env', 'HOME') }}"}
`

func TestPlaybookPreparesAPackage(t *testing.T) {
	t.Parallel()
	isolation, err := isolate.New(t.Context(), isolate.Options{Mode: isolate.Best})
	if err != nil {
		t.Fatal(err)
	}
	r, dir := playbooks(t, isolation, map[string]string{"du/prepare.yaml": preparing, "du/more.yaml": "more: vars"})
	prepared, out, err := r.Prepare(t.Context(), playbookPlugin("prepare", "du/prepare.yaml", map[string]string{"region": "west"}), target, "d1", pkg)
	if err != nil || !prepared {
		t.Fatalf("prepared is %t: %v", prepared, err)
	}
	config := out.Find(krm.Identity{GVK: krm.GVK{Version: "v1", Kind: "ConfigMap"}, Name: "d1"})
	if len(out) != len(pkg)+1 || config.Text("data", "region") != "west" || config.Text("data", "more") != "vars" {
		t.Errorf("the package is %v", out)
	}
	if home := config.Text("data", "home"); home == "" || home == os.Getenv("HOME") {
		t.Errorf("the playbook's home is %q, want one of its own", home)
	} else if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private folder %s was left behind: %v", home, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "du")); err != nil || len(left) != 2 {
		t.Errorf("the folder of the playbook has %v, %v", left, err)
	}
}

func TestPlaybookThatFailsNamesItsTask(t *testing.T) {
	t.Parallel()
	r, dir := playbooks(t, nil, map[string]string{
		"fail.yaml":   "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - {name: check, ansible.builtin.fail: {msg: 'no license'}}\n",
		"secret.yaml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - {name: check, ansible.builtin.fail: {msg: 'hunter2'}, no_log: true}\n",
		"broken.yaml": "- hosts: [\n",
		"quiet.yaml":  "- hosts: localhost\n  gather_facts: false\n  tasks: []\n",
		"refuse.yaml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.set_stats: {data: {plugin_output: {error: 'no such site'}}}\n",
		"hosts.yaml":  "- hosts: edge\n  gather_facts: false\n  connection: local\n  tasks:\n    - {name: check, ansible.builtin.fail: {msg: 'on {{ inventory_hostname }}'}}\n",
		"inventory":   "[edge]\nedge-1\n",
	})
	outside := filepath.Join(t.TempDir(), "playbook.yaml")
	if err := os.WriteFile(outside, []byte("- hosts: localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		path, want string
		properties map[string]string
		refused    bool
	}{
		"task":      {path: "fail.yaml", want: `task "check"`},
		"message":   {path: "fail.yaml", want: "no license"},
		"no_log":    {path: "secret.yaml", want: "hidden (no_log)"},
		"syntax":    {path: "broken.yaml", want: "broken.yaml"},
		"no output": {path: "quiet.yaml", want: "sets the stat plugin_output"},
		"refusal":   {path: "refuse.yaml", want: "no such site", refused: true},
		"inventory": {path: "hosts.yaml", want: "on edge-1", properties: map[string]string{"_ansible.inventory": "inventory"}},
		"missing":   {path: "none.yaml", want: "does not exist"},
		"outside":   {path: outside, want: "not below a folder of --plugin-programs"},
		"link":      {path: "link.yaml", want: "leads out of the folder"},
		"elsewhere": {path: "hosts.yaml", want: "--plugin-programs", properties: map[string]string{"_ansible.inventory": "../../etc/passwd"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := r.Prepare(t.Context(), playbookPlugin("prepare", test.path, test.properties), target, "d1", pkg)
			failed, ok := errors.AsType[*plugin.Error](err)
			if !ok || !strings.Contains(strings.ReplaceAll(err.Error(), "'", `"`), test.want) || failed.Refused != test.refused || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestPlaybookNeedsItsFolderAmongThePrograms(t *testing.T) {
	t.Parallel()
	r := plugin.New(plugin.Options{})
	p := playbookPlugin("schedule", "/etc/playbook.yaml", nil)
	err := r.Schedule(t.Context(), p, target, tko.Site{ID: "lagos"}, nil)
	if err == nil || !strings.Contains(err.Error(), "--plugin-programs") {
		t.Errorf("got %v", err)
	}
	if err := r.Check(p); !errors.Is(err, isolate.ErrOutside) {
		t.Errorf("Check returns %v", err)
	}
}

// Who writes a package must not run code in a playbook, and expressions in packages, such
// as those of Helm charts, are data.
func TestPlaybookDoesNotEvaluateItsInput(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "marker")
	values := []string{
		"{{ lookup('ansible.builtin.pipe', 'touch " + marker + "') }}",
		"{% set x = 1 %}{{ x }}", "{# comment #}", "plain: text # {", "{{ get('v1').spec }} \"quoted\" \\ \n\t\u0001\u007f\u0085\u2028\ufeffä😀",
	}
	numbers := map[string]any{"{{ 1 + 1 }}": int64(1) << 60, "exponent": 1e30, "fraction": 0.1, "no": false, "nothing": nil, "yes": "yes", "1": "012", "": "", strings.Repeat("k", 2000): ""}
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	r, _ := playbooks(t, nil, map[string]string{"pass.yaml": `
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.set_stats:
        data:
          plugin_output: {prepared: true, package: "{{ plugin.deploymentPackage + [own] }}"}
      vars:
        own: {apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {region: "{{ region }}"}}
`})
	in := append(pkg.Clone(), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "evil"}, "list": list, "map": numbers})
	prepared, out, err := r.Prepare(t.Context(), playbookPlugin("prepare", "pass.yaml", map[string]string{"region": values[0]}), target, "d1", in)
	if err != nil || !prepared {
		t.Fatalf("prepared is %t: %v", prepared, err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, os.ErrNotExist) {
		t.Error("the input was evaluated")
	}
	config := krm.GVK{Version: "v1", Kind: "ConfigMap"}
	if diff := cmp.Diff(any(list), out.Find(krm.Identity{GVK: config, Name: "evil"})["list"]); diff != "" {
		t.Errorf("the package was changed:\n%s", diff)
	}
	if diff := cmp.Diff(any(numbers), out.Find(krm.Identity{GVK: config, Name: "evil"})["map"]); diff != "" {
		t.Errorf("the package was changed:\n%s", diff)
	}
	if got := out.Find(krm.Identity{GVK: config, Name: "own"}).Text("data", "region"); got != values[0] {
		t.Errorf("the property was changed to %q", got)
	}
}

// The playbook of docs/ansible.md prepares: without the annotation of its resource, a
// deployment would wait for ever.
func TestDocumentedPlaybookMarksItsResourceAsPrepared(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/ansible.md")
	if err != nil {
		t.Fatal(err)
	}
	playbook := ""
	for block := range strings.SplitSeq(string(page), "```yaml\n") {
		if text, _, _ := strings.Cut(block, "```"); strings.Contains(text, "plugin_output") {
			playbook = text
		}
	}
	r, _ := playbooks(t, nil, map[string]string{"prepare.yaml": playbook})
	prepared, out, err := r.Prepare(t.Context(), playbookPlugin("prepare", "prepare.yaml", nil), target, "d1", pkg)
	if err != nil || !prepared || len(out) != len(pkg) {
		t.Fatalf("prepared is %t: %v, %v", prepared, out, err)
	}
	if !out.Find(target).IsPrepared() {
		t.Errorf("the resource isn't marked: %v", out.Find(target))
	}
}
