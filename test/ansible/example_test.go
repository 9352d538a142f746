package ansible

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/process"
)

// The workflow of examples/ansible provisions two sites, and prepares and schedules the DU
// there, by playbooks as plugins. A second run changes nothing.
func TestExampleRunsWithLocalPlaybooks(t *testing.T) {
	t.Parallel()
	manifests := t.TempDir()
	examples, err := filepath.Abs("../../examples/ansible")
	if err != nil {
		t.Fatal(err)
	}
	c := newControl(t, "--roles=data,preparer,meta-scheduler", "--python-env="+process.Ansible(t), "--plugin-timeout=5m",
		"--plugin-programs="+filepath.Join(examples, "playbooks"), "--plugin-files-writable="+manifests)
	for run, want := range []string{"changed=4 ", "changed=0 "} {
		out, stderr, code := c.run("ansible-playbook", "-i", filepath.Join(examples, "sites.tko.yaml"), filepath.Join(examples, "workflow.yaml"), "-e", "manifests="+manifests)
		if code != 0 || !strings.Contains(out, want) && run == 1 {
			t.Fatalf("run %d: exit code %d:\n%s%s", run, code, out, stderr)
		}
		if run == 1 && (strings.Contains(out, "changed: [") || strings.Contains(out, "changed=1 ") || strings.Contains(out, "changed=2 ")) {
			t.Errorf("the second run changes something:\n%s", out)
		}
	}
	for _, site := range []string{"north--edge-1", "north--edge-2"} {
		files, err := filepath.Glob(filepath.Join(manifests, site, "*.yaml"))
		if err != nil || len(files) != 1 {
			t.Fatalf("site %s has the manifests %v", site, files)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"kind: DaemonSet", "namespace: ran", "kind: Namespace"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("the manifests of %s lack %q:\n%s", site, want, text)
			}
		}
		if strings.Contains(string(text), "nephio.org/v1") {
			t.Errorf("the manifests of %s have resources of TKO itself:\n%s", site, text)
		}
	}
}
