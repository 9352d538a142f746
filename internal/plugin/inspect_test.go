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

// registered are plugins of a data controller.
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

func (r *registered) says(i int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all[i].Stamp.Conditions {
		return c.Status + " " + c.Reason + ": " + c.Message
	}
	return ""
}

// A plugin whose program isn't there says so, before a package needs it, and no
// longer when the program comes: also if another server finds it.
func TestMissingProgramIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runner := plugin.New(plugin.Options{})
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
		if says := data.says(0); !strings.HasPrefix(says, "False ProgramMissing: ") || !strings.Contains(says, `"/nowhere/program"`) || !strings.Contains(says, "server one") {
			t.Errorf("the missing one: %q", says)
		}
		for i := 1; i < 4; i++ {
			if says := data.says(i); says != "" {
				t.Errorf("%s: %q", data.all[i].ID(), says)
			}
		}
		time.Sleep(time.Minute)
		if data.writes != 1 {
			t.Errorf("%d writes", data.writes)
		}
		data.mu.Lock()
		data.all[0].Arguments = []string{"sh"} // as if it had come
		data.mu.Unlock()
		time.Sleep(time.Minute)
		if says := data.says(0); !strings.HasPrefix(says, "True ProgramFound: ") {
			t.Errorf("the program is there: %q", says)
		}
		// said by a server that is gone
		if err := data.SetConditions(ctx, tko.KindPlugin, missing.ID(), []tko.Condition{{
			Type: tko.ConditionRunnable, Status: tko.ConditionFalse, Reason: plugin.ReasonProgramMissing, Message: "there is no program on the server two: ", ObservedRevision: 1,
		}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if says := data.says(0); !strings.HasPrefix(says, "False") {
			t.Errorf("another server is contradicted at once: %q", says)
		}
		time.Sleep(5 * time.Minute)
		if says := data.says(0); !strings.HasPrefix(says, "True") {
			t.Errorf("another server that is gone: %q", says)
		}
		cancel()
		running.Wait()
	})
}
