package ansible

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// The playbook of docs/ansible.md prepares a deployment. Without the annotation that marks the
// resource as prepared, the deployment would wait, and the playbook would run again and again.
func TestPlaybookOfThePagePreparesADeployment(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/ansible.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(- hosts: localhost\n[^`]*plugin_output[^`]*)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no playbook that returns an output")
	}
	playbooks := t.TempDir()
	if err := os.WriteFile(filepath.Join(playbooks, "prepare.yaml"), block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	server := process.StartServer(t, "--store=sqlite::memory:", "--roles=data,preparer", "--python-env="+process.Ansible(t), "--plugin-timeout=5m", "--plugin-programs="+playbooks)
	c, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := t.Context()
	plugin := tko.Plugin{Type: tko.PluginPrepare, Name: "page", Executor: tko.ExecutorAnsible, Arguments: []string{"playbook:" + filepath.Join(playbooks, "prepare.yaml")}, Triggers: []krm.GVK{fill}}
	if _, err := c.RegisterPlugin(ctx, plugin); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t", Package: krm.Package{resource(fill)}}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var d tko.Deployment
	wait(t, func() bool {
		d, err = c.Deployment(ctx, id, 0)
		return err == nil && d.Prepared
	}, "the deployment is prepared")
	trigger := d.Package.Find(krm.Identity{GVK: fill, Name: "it"})
	if !trigger.IsPrepared() || len(d.Package) != 2 {
		t.Errorf("its package is %v", d.Package)
	}
	if c := condition(d.Stamp, tko.ConditionPrepared); strings.Contains(c.Message, "waits") {
		t.Errorf("it is prepared, and waits: %+v", c)
	}
}
