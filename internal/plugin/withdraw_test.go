package plugin_test

import (
	"errors"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/awx/awxtest"
	"github.com/tko-orchestrator/tko/krm"
)

var edge = krm.Identity{GVK: krm.GVK{Group: "edge.plugin.nephio.org", Version: "v1", Kind: "Edge"}, Name: "edge"}

func awxPlugin(s *awxtest.Server, name string) tko.Plugin {
	return tko.Plugin{Type: tko.PluginSchedule, Name: name, Executor: tko.ExecutorAnsible, Arguments: []string{"apply"}, Properties: map[string]string{
		"_awx.host": s.URL, "_awx.username": awxtest.User, "_awx.password": awxtest.Password, "_awx.inventory": "sites",
	}}
}

// launch launches a job of a plugin for the site "lagos".
func launch(t *testing.T, r *plugin.Runner, p tko.Plugin) {
	t.Helper()
	err := r.Schedule(t.Context(), p, edge, tko.Site{ID: "lagos"}, nil)
	if _, ok := errors.AsType[*tko.PendingError](err); !ok {
		t.Fatalf("the error is %v, want a PendingError", err)
	}
}

func TestWithdrawCancelsWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	s, other := awxtest.Start(t, false, awxtest.Template{Name: "apply"}), awxtest.Start(t, false, awxtest.Template{Name: "apply"})
	r := plugin.New(plugin.Options{})
	stays, removed, moves := awxPlugin(s, "stays"), awxPlugin(s, "removed"), awxPlugin(s, "moves")
	for _, p := range []tko.Plugin{stays, removed, moves} {
		launch(t, r, p)
	}
	moved := awxPlugin(other, "moves")
	launch(t, r, moved)
	w := tko.Withdrawal{Type: tko.PluginSchedule, Entity: "lagos", Registered: []tko.Plugin{stays, moved}, Wanted: map[string][]krm.Identity{stays.ID(): {edge}, moved.ID(): {edge}}}
	prepare, elsewhere := w, w
	prepare.Type, elsewhere.Entity = tko.PluginPrepare, "oslo"
	for _, of := range []tko.Withdrawal{prepare, elsewhere} {
		if err := r.Withdraw(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range s.Jobs() {
		if j.Status != "pending" {
			t.Errorf("job %d of another type or site is %s", j.ID, j.Status)
		}
	}
	w.Removed = true
	if err := r.Withdraw(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	requests := len(s.Requests())
	if err := r.Withdraw(t.Context(), w); err != nil || len(s.Requests()) != requests {
		t.Errorf("a removed plugin is withdrawn again and again: %v, %v", err, s.Requests()[requests:])
	}
	w.Removed = false
	for i, want := range []string{"pending", "canceled", "canceled"} {
		if j := s.Jobs()[i]; j.Status != want {
			t.Errorf("job %d is %s, want %s", j.ID, j.Status, want)
		}
	}
	if j := other.Jobs()[0]; j.Status != "pending" {
		t.Errorf("the job of the moved plugin is %s", j.Status)
	}
	w.Wanted = nil
	if err := r.Withdraw(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if a, b := s.Jobs()[0], other.Jobs()[0]; a.Status != "canceled" || b.Status != "canceled" {
		t.Errorf("the jobs are %s and %s, want canceled", a.Status, b.Status)
	}
}

// A site must not wait forever for an AWX that was switched off.
func TestWithdrawGivesUpOnAnAWXThatIsGone(t *testing.T) {
	t.Parallel()
	s := awxtest.Start(t, false, awxtest.Template{Name: "apply"})
	r := plugin.New(plugin.Options{})
	launch(t, r, awxPlugin(s, "p"))
	s.Close()
	w := tko.Withdrawal{Type: tko.PluginSchedule, Entity: "lagos"}
	if err := r.Withdraw(t.Context(), w); err == nil {
		t.Error("the first failure is ignored")
	}
	w.Attempt = 5
	if r.Withdraw(t.Context(), w) != nil {
		t.Error("it doesn't give up")
	}
}
