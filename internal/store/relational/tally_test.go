package relational_test

import (
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Commits before and after the snapshot of a count are in the numbers once.
func TestCommitsWhileEntitiesAreCountedAreInTheNumbersOnce(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	crashed := func(id string) record.Write {
		w := record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{Key: deploymentKey(id)}}
		w.Record.Conditions = []tko.Condition{{Type: tko.ConditionHealthy, Status: tko.ConditionFalse, Reason: "Crashed"}}
		return w
	}
	commit(t, s, written(tko.KindDeployment, "a"), written(tko.KindDeployment, "b"), written(tko.KindDeployment, "c"))
	if err := s.Exec(t.Context(), "UPDATE head SET tallied = -1"); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := s.CountEntities(t.Context(), func() {
		n++
		commit(t, s, written(tko.KindDeployment, fmt.Sprint("new", n)), crashed([]string{"", "a", "b"}[n]))
		if _, ok, err := s.Tally(t.Context()); ok || err != nil {
			t.Errorf("numbers are returned before all entities are counted: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	tally, ok, err := s.Tally(t.Context())
	if err != nil || !ok {
		t.Fatalf("there are no numbers: %v", err)
	}
	got := map[int]int64{} // by the number of conditions
	for _, c := range tally.Classes {
		got[len(c.Conditions)] += c.Count
	}
	if got[0] != 3 || got[1] != 2 || len(tally.Oldest) != 1 || tally.Oldest[0].Key.ID != "a" {
		t.Errorf("%d without and %d with a failure, the oldest is %+v; want 3, 2, a", got[0], got[1], tally.Oldest)
	}
}
