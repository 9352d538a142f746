package tkoserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A plugin whose program does not exist is accepted, because it may be installed
// later. Its Runnable condition reports that it can't run, and where.
func TestPluginWithoutItsProgramIsReported(t *testing.T) {
	served, _ := start(t, "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=localhost:0", "--git-cache="+t.TempDir())
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, typ := range []string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule} {
		_, err := c.RegisterPlugin(t.Context(), tko.Plugin{
			Type: typ, Name: "missing", Executor: tko.ExecutorCommand, Arguments: []string{"/nowhere/program"}, Triggers: []krm.GVK{{Group: "x.plugin.nephio.org", Version: "v1", Kind: "X"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually.NoError(t, "the conditions of the plugins", func() error {
		reported := 0
		for p, err := range c.Plugins(t.Context(), tko.PluginSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, condition := range p.Stamp.Conditions {
				if condition.Type == tko.ConditionRunnable && condition.Status == tko.ConditionFalse && strings.Contains(condition.Message, `"/nowhere/program"`) {
					reported++
				}
			}
		}
		if reported != 3 {
			return fmt.Errorf("%d of 3 plugins are reported", reported)
		}
		return nil
	})
}

// Registering a shell is no way to run commands as the server's user.
func TestProgramOutsideOfTheFoldersIsReportedAndNotRun(t *testing.T) {
	served, _ := start(t, "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=localhost:0", "--git-cache="+t.TempDir(), "--plugin-programs="+t.TempDir())
	c, err := client.Dial(client.Options{Address: served.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	marker := filepath.Join(t.TempDir(), "ran")
	gvk := krm.GVK{Group: "x.plugin.nephio.org", Version: "v1", Kind: "X"}
	shell := tko.Plugin{Type: tko.PluginPrepare, Name: "shell", Arguments: []string{"/bin/sh", "-c", "id >" + marker + "; echo 'prepared: false'"}, Triggers: []krm.GVK{gvk}}
	if _, err := c.RegisterPlugin(t.Context(), shell); err != nil {
		t.Fatal(err)
	}
	resource := krm.Resource{"apiVersion": "x.plugin.nephio.org/v1", "kind": "X", "metadata": map[string]any{"name": "x"}}
	if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: "t", Package: krm.Package{resource}}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "t"})
	if err != nil {
		t.Fatal(err)
	}
	eventually.NoError(t, "the conditions of the plugin and the deployment", func() error {
		p, err := c.Plugin(t.Context(), tko.PluginPrepare, "shell")
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Deployment(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.Stamp.Conditions, func(c tko.Condition) bool {
			return c.Type == tko.ConditionRunnable && c.Status == tko.ConditionFalse && c.Reason == plugin.ReasonProgramNotAllowed
		}) {
			return fmt.Errorf("the plugin has the conditions %v", p.Stamp.Conditions)
		}
		if !slices.ContainsFunc(d.Stamp.Conditions, func(c tko.Condition) bool {
			return c.Status == tko.ConditionFalse && strings.Contains(c.Message, "--plugin-programs")
		}) {
			return fmt.Errorf("the deployment has the conditions %v", d.Stamp.Conditions)
		}
		return nil
	})
	if _, err := os.Stat(marker); err == nil {
		t.Error("the shell was run")
	}
	about, err := c.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(about.Isolation) != 5 || about.Isolation[0].Name != "files" || about.Isolation[0].State == "" {
		t.Errorf("about has the isolation %v, want five layers", about.Isolation)
	}
}
