package catalog_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The author of a plugin that can't run learns that with its registration, by each way to
// register it, and not when a package needs the plugin.
func TestPluginThatCannotRunIsReportedWhenItIsRegistered(t *testing.T) {
	t.Parallel()
	can := false
	w := newWorld(t, catalog.Options{InspectPlugin: func(p tko.Plugin) (tko.Condition, bool) {
		c := tko.Condition{Type: tko.ConditionRunnable, Status: tko.ConditionFalse, Reason: "ProgramMissing", Message: p.Arguments[0], ObservedRevision: p.Stamp.Revision}
		if can {
			c.Status, c.Reason = tko.ConditionTrue, "ProgramFound"
		}
		return c, true
	}})
	p := tko.Plugin{Type: tko.PluginValidate, Name: "a", Executor: tko.ExecutorCommand, Arguments: []string{"./smf.py"}}
	has := func(name, status string, revision int64) {
		t.Helper()
		got, err := w.Plugin(w.ctx, tko.PluginValidate, name)
		if err != nil {
			t.Fatal(err)
		}
		c := tko.FindCondition(got.Stamp.Conditions, tko.ConditionRunnable)
		if c == nil || c.Status != status || c.Message != "./smf.py" || c.ObservedRevision != revision || got.Stamp.Revision != revision {
			t.Errorf("plugin %q at revision %d has the condition %+v: want %s at revision %d", name, got.Stamp.Revision, c, status, revision)
		}
	}
	if _, err := w.RegisterPlugin(w.ctx, p); err != nil {
		t.Fatal(err)
	}
	has("a", tko.ConditionFalse, 1)
	p.Name = "b"
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindPlugin, ID: p.ID(), Plugin: p}); err != nil {
		t.Fatal(err)
	}
	has("b", tko.ConditionFalse, 1)
	can, p.Name, p.Properties = true, "a", map[string]string{"x": "y"}
	if _, err := w.RegisterPlugin(w.ctx, p); err != nil {
		t.Fatal(err)
	}
	has("a", tko.ConditionTrue, 2)
}
