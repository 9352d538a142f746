package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
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
