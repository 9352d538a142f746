package prepare_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
)

// TestPlacementAtManySitesSurvivesInterruptions places a template at 10,000
// sites. Calls that create children fail repeatedly, some before they take effect and
// some after.
func TestPlacementAtManySitesSurvivesInterruptions(t *testing.T) {
	const sites = 10_000
	m := newMemory()
	m.templates["leaf"] = pkg(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: leaf}}`)
	var want []string
	for i := range sites {
		site := fmt.Sprintf("north-%05d", i)
		m.sites[tko.SiteID(site)] = nil
		want = append(want, "leaf at "+site)
	}
	id := m.deploy(t, updating("update: Once"))
	var calls atomic.Int64
	broken := errors.New("the connection broke")
	m.beforeEach = func(call string) error {
		if call != "children" {
			return nil
		}
		if n := calls.Add(1); n < 100 && n%7 == 3 {
			return broken
		}
		return nil
	}
	m.afterEach = func(call string) error {
		if call == "children" && calls.Load() < 100 && calls.Load()%11 == 5 {
			return broken
		}
		return nil
	}
	rounds := 0
	for ; !m.get(id).Prepared; rounds++ {
		if rounds == 100 {
			t.Fatalf("not prepared: %s", m.condition(id, tko.ConditionPrepared))
		}
		reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id)
	}
	if diff := cmp.Diff(want, m.children(id)); diff != "" {
		t.Errorf("after %d reconciliations: %s", rounds, diff)
	}
	if most := slices.Max(m.batches); most > 1000 || rounds < 2 {
		t.Errorf("%d reconciliations, and a batch of %d children", rounds, most)
	}
}

// TestPartialListOfSitesIsNoSelection breaks the list of sites off. The part before
// is not used as the selection.
func TestPartialListOfSitesIsNoSelection(t *testing.T) {
	m, _, id := placedAt(t, "update: Apply, budget: {delete: 100}", "north-1", "north-2", "north-3")
	m.siteFails = 2
	other := m.deploy(t, updating("update: Once"))
	p := prepare.New(m, runner{}, prepare.Options{})
	for _, d := range []tko.DeploymentID{id, other} {
		if r := reconcile(t, p, d); r.Outcome != tko.WorkFailed || r.Err == nil {
			t.Errorf("result %+v: want failed work with an error", r)
		}
	}
	if got := m.children(id); len(got) != 3 {
		t.Errorf("placed again at a part of the sites: %v", got)
	}
	if got := m.children(other); len(got) != 0 {
		t.Errorf("placed at a part of the sites: %v", got)
	}
	m.siteFails = 0
	reconcile(t, p, other)
	if got := m.children(other); len(got) != 3 {
		t.Errorf("placed at %v", got)
	}
}
