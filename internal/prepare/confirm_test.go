package prepare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare"
)

// The data controller refuses to delete a child with very many descendants. The
// deployment reports that.
func TestPlacementReportsDeletionThatMustBeConfirmed(t *testing.T) {
	m, p, id := placedAt(t, "update: Apply, budget: {delete: 5}", "north-1", "north-2")
	refused := true
	m.beforeEach = func(call string) error {
		if call == "delete" && refused {
			return tko.Errorf(tko.ErrInvalid, "this would delete 9000 of 9003 deployments: confirm 9000")
		}
		return nil
	}
	delete(m.sites, "north-1")
	reconcile(t, p, id)
	if got := m.children(id); len(got) != 2 {
		t.Errorf("the children are %v", got)
	}
	said := m.condition(id, tko.ConditionPlaced)
	for _, part := range []string{"False NotConfirmed", "deployment-00002", "9000 of 9003", "tko deployment delete deployment-00002"} {
		if !strings.Contains(said, part) {
			t.Errorf("the condition doesn't say %q: %s", part, said)
		}
	}
	refused = false
	reconcile(t, prepare.New(m, runner{}, prepare.Options{}), id) // a new preparer doesn't wait for the next review
	if got := m.children(id); !slices.Equal(got, at("north-2")) || !strings.HasPrefix(m.condition(id, tko.ConditionPlaced), "True") {
		t.Errorf("once it may, the children are %v, and it says %s", got, m.condition(id, tko.ConditionPlaced))
	}
}
