package catalog_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

// One rollout at a time changes what is derived from a topology, at all levels.
func TestTopologyHasOneOpenRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	top := w.create(tko.NewDeployment{})
	nested := w.create(tko.NewDeployment{Parent: top})
	deeper := w.create(tko.NewDeployment{Parent: nested})
	other := w.create(tko.NewDeployment{})
	propose := func(parent tko.DeploymentID, placement string) tko.RolloutID {
		t.Helper()
		s, err := w.ProposeRollout(w.ctx, tko.RolloutID(fmt.Sprintf("placement/%s/%s", parent, placement)), pkg(t, fmt.Sprintf(
			"apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{place: {}, select: {deploymentIds: [%s]}}]}\n", parent)))
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	first := propose(nested, "p")
	if got := propose(nested, "p"); got != first {
		t.Errorf("the same placement has the rollouts %q and %q", first, got)
	}
	for _, p := range []struct {
		parent tko.DeploymentID
		name   string
	}{{top, "p"}, {deeper, "p"}, {nested, "q"}} {
		if got := propose(p.parent, p.name); got != first {
			t.Errorf("placement %q of %q has rollout %q in addition to %q", p.name, p.parent, got, first)
		}
	}
	if got := propose(other, "p"); got == first {
		t.Error("another topology has no rollout of its own")
	}
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: first, Verb: "cancel"}); err != nil {
		t.Fatal(err)
	}
	if got := propose(top, "p"); got == first {
		t.Error("a rollout that is cancelled keeps the topology from having another one")
	}
}

// A meeting is a store in which the first readers of all rollouts wait for each other, after
// they have read.
type meeting struct {
	record.Store

	lock    sync.Mutex
	readers int
	all     chan struct{}
}

func (m *meeting) List(ctx context.Context, q record.Query) iter.Seq2[record.Record, error] {
	if q.Kind != tko.KindRollout {
		return m.Store.List(ctx, q)
	}
	return func(yield func(record.Record, error) bool) {
		var records []record.Record
		for r, err := range m.Store.List(ctx, q) {
			if err != nil {
				yield(r, err)
				return
			}
			records = append(records, r)
		}
		m.lock.Lock()
		m.readers--
		if m.readers == 0 {
			close(m.all)
		}
		m.lock.Unlock()
		<-m.all
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Two preparers that propose a rollout at the same moment, for two placements of one topology,
// get the same one.
func TestTopologyHasOneOpenRolloutOfTwoProposedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	top := w.create(tko.NewDeployment{})
	nested := w.create(tko.NewDeployment{Parent: top})
	store := &meeting{Store: w.store, readers: 2, all: make(chan struct{})}
	service := catalog.New(store, w.validator, catalog.Options{})
	parents, proposed := []tko.DeploymentID{top, nested}, make([]tko.RolloutID, 2)
	var both sync.WaitGroup
	for i, parent := range parents {
		both.Go(func() {
			s, err := service.ProposeRollout(w.ctx, tko.RolloutID(fmt.Sprintf("placement/%s/p", parent)), pkg(t, fmt.Sprintf(
				"apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{place: {}, select: {deploymentIds: [%s]}}]}\n", parent)))
			if err != nil {
				t.Error(err)
			}
			proposed[i] = s.ID
		})
	}
	both.Wait()
	if proposed[0] != proposed[1] {
		t.Errorf("one topology has the rollouts %q and %q", proposed[0], proposed[1])
	}
}
