package plugin_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/plugin"
)

// registered is a data controller's list of plugins.
type registered struct {
	mu     sync.Mutex
	all    []tko.Plugin
	writes int
}

func (r *registered) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(yield func(tko.Plugin, error) bool) {
		r.mu.Lock()
		all := append([]tko.Plugin{}, r.all...)
		r.mu.Unlock()
		for _, p := range all {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (r *registered) SetConditions(_ context.Context, _ tko.Kind, id string, conditions []tko.Condition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	for i := range r.all {
		if r.all[i].ID() == id {
			conditions[0].LastTransition = time.Now()
			r.all[i].Stamp.Conditions = conditions
		}
	}
	return nil
}

func (r *registered) condition(i int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all[i].Stamp.Conditions {
		return c.Status + " " + c.Reason + ": " + c.Message
	}
	return ""
}

// A missing program is reported before a package needs it, until the program
// exists, also if another server reported it.
func TestMissingProgramIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := plugin.New(plugin.Options{Programs: []string{"/"}})
		defer runner.Close()
		missing := tko.Plugin{Type: tko.PluginPrepare, Name: "missing", Executor: tko.ExecutorCommand, Arguments: []string{"/nowhere/program"}, Stamp: tko.Stamp{Revision: 1}}
		there, inPod, other := missing, missing, missing
		there.Name, there.Arguments = "there", []string{"sh", "-c", "true"}
		inPod.Name, inPod.Properties = "in-a-pod", map[string]string{tko.PropertyPod: "x"}
		other.Type = tko.PluginSchedule
		data := &registered{all: []tko.Plugin{missing, there, inPod, other}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		start := func(host string) {
			running.Go(func() {
				if err := (&plugin.Inspector{Plugins: data, Runner: runner, Types: []string{tko.PluginPrepare}, Host: host}).Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		start("one")
		synctest.Wait()
		if got := data.condition(0); !strings.HasPrefix(got, "False ProgramMissing: ") || !strings.Contains(got, `"/nowhere/program"`) || !strings.Contains(got, "server one") {
			t.Errorf("the condition of a missing program is %q", got)
		}
		for i := 1; i < 4; i++ {
			if got := data.condition(i); got != "" {
				t.Errorf("%s has the condition %q, want none", data.all[i].ID(), got)
			}
		}
		time.Sleep(time.Minute)
		if data.writes != 1 {
			t.Errorf("got %d writes, want 1", data.writes)
		}
		data.mu.Lock()
		data.all[0].Arguments = []string{"sh"} // a program that exists
		data.mu.Unlock()
		time.Sleep(time.Minute)
		if got := data.condition(0); !strings.HasPrefix(got, "True ProgramFound: ") {
			t.Errorf("the condition of an existing program is %q", got)
		}
		// reported by a server that no longer exists
		if err := data.SetConditions(ctx, tko.KindPlugin, missing.ID(), []tko.Condition{{
			Type: tko.ConditionRunnable, Status: tko.ConditionFalse, Reason: plugin.ReasonProgramMissing, Message: "program \"x\": not found on the server two: ", ObservedRevision: 1,
		}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := data.condition(0); !strings.HasPrefix(got, "False") {
			t.Errorf("the condition of another server was replaced at once: %q", got)
		}
		time.Sleep(5 * time.Minute)
		if got := data.condition(0); !strings.HasPrefix(got, "True") {
			t.Errorf("the condition of a server that no longer exists stays: %q", got)
		}
		cancel()
		running.Wait()
	})
}
