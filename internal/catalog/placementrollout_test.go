package catalog_test

import (
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
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
