package prepare_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// remote is a runner of plugins whose work continues in another system, until done has the
// resource. It withdraws with an error as long as there is one.
type remote struct {
	runner

	done      map[string]bool // by name of the resource
	started   []string
	withdrawn []tko.Withdrawal
	err       error
}

func (r *remote) Remember(...tko.Plugin) {}

func (r *remote) Withdraw(_ context.Context, w tko.Withdrawal) error {
	r.withdrawn = append(r.withdrawn, w)
	return r.err
}

func (r *remote) Prepare(ctx context.Context, p tko.Plugin, target krm.Identity, id tko.DeploymentID, in krm.Package, notes ...func(string)) (prepared bool, out krm.Package, err error) {
	if !p.UsesAWX() {
		return r.runner.Prepare(ctx, p, target, id, in, notes...)
	}
	if !slices.Contains(r.started, target.Name) {
		r.started = append(r.started, target.Name)
	}
	if r.done[target.Name] {
		return marks(target, in.Clone())
	}
	return false, nil, &tko.PendingError{Message: "job for " + target.Name + " is running", Retry: 7 * time.Second}
}

func withRemote(t *testing.T) (*memory, *remote, *prepare.Preparer, tko.DeploymentID) {
	t.Helper()
	m := newMemory()
	m.register("away", "Away")
	m.plugins[0].Executor, m.plugins[0].Arguments = tko.ExecutorAnsible, []string{"job"}
	m.register("here", "Here")
	id := m.deploy(t, `
{apiVersion: PLUGIN, kind: Away, metadata: {name: one}}
---
{apiVersion: PLUGIN, kind: Away, metadata: {name: two}}
---
{apiVersion: PLUGIN, kind: Here, metadata: {name: here}}
`)
	r := &remote{runner: runner{"here": marks}, done: map[string]bool{}}
	return m, r, prepare.New(m, r, prepare.Options{}), id
}

// A job begins anew with each change of the package, so nothing else must change it.
func TestWorkInOtherSystemsBeginsLastAndOneByOne(t *testing.T) {
	m, r, p, id := withRemote(t)
	result := reconcile(t, p, id)
	if result.Outcome != tko.WorkLater || result.Retry < 7*time.Second || result.Retry > 9*time.Second {
		t.Errorf("got %+v", result)
	}
	if d := m.get(id); !slices.ContainsFunc(d.Package, func(r krm.Resource) bool { return r.Name() == "here" && r.IsPrepared() }) {
		t.Error("the job began before the other plugin had run")
	}
	if got := m.condition(id, tko.ConditionPrepared); !strings.HasPrefix(got, "False Running") || !strings.Contains(got, "job for one is running") {
		t.Errorf("the condition is %s", got)
	}
	if diff := cmp.Diff([]string{"one"}, r.started); diff != "" {
		t.Errorf("jobs at the same time:\n%s", diff)
	}
	r.done["one"] = true
	reconcile(t, p, id)
	if diff := cmp.Diff([]string{"one", "two"}, r.started); diff != "" {
		t.Error(diff)
	}
	r.done["two"] = true
	if result := reconcile(t, p, id); result.Outcome != tko.WorkDone || !m.get(id).Prepared {
		t.Errorf("got %+v", result)
	}
	for _, w := range r.withdrawn { // what a changed package no longer needs
		if w.Entity != string(id) || w.Type != tko.PluginPrepare {
			t.Errorf("withdrawn: %+v", w)
		}
	}
}

func TestWorkInOtherSystemsEndsWithItsDeployment(t *testing.T) {
	tests := map[string]func(m *memory, id tko.DeploymentID){
		"deleted": func(m *memory, id tko.DeploymentID) { delete(m.deployments, id) },
		"prepared by a user": func(m *memory, id tko.DeploymentID) {
			m.deployments[id].Prepared = true
		},
		"the plugin was removed": func(m *memory, id tko.DeploymentID) {
			m.plugins = slices.DeleteFunc(m.plugins, func(p tko.Plugin) bool { return p.Name == "away" })
			m.position++
			m.deployments[id].Stamp.Position = m.position // plugins are read again for it
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			m, r, p, id := withRemote(t)
			reconcile(t, p, id)
			r.withdrawn, r.err = nil, errors.New("AWX doesn't respond")
			change(m, id)
			item := tko.WorkItem{Queue: tko.QueuePrepare, Key: string(id), Claim: "c", Attempt: 2}
			if result := p.Prepare(t.Context(), item); result.Outcome != tko.WorkFailed || !errors.Is(result.Err, r.err) {
				t.Errorf("got %+v, want the error", result)
			}
			r.err = nil
			if result := p.Prepare(t.Context(), item); result.Outcome == tko.WorkFailed {
				t.Errorf("got %+v", result)
			}
			if len(r.withdrawn) != 2 || r.withdrawn[0].Attempt != 2 || len(r.withdrawn[0].Wanted) > 0 {
				t.Errorf("withdrawn: %+v", r.withdrawn)
			}
		})
	}
}

// What is running is not withdrawn again and again.
func TestRunningWorkIsLeftAlone(t *testing.T) {
	_, r, p, id := withRemote(t)
	var result work.Result
	for range 5 {
		result = reconcile(t, p, id)
	}
	r.withdrawn = slices.DeleteFunc(r.withdrawn, func(w tko.Withdrawal) bool { return w.Removed })
	if result.Outcome != tko.WorkLater || len(r.withdrawn) > 1 {
		t.Errorf("got %+v, %d withdrawals", result, len(r.withdrawn))
	}
}
