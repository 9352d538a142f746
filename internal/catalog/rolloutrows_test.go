package catalog_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A rowsStore has a rollout with many rows. Between two reads, all of them move on.
type rowsStore struct {
	record.Store

	rows, reads int
}

func (s *rowsStore) RolloutStates(context.Context, ...string) ([]record.RolloutState, int64, time.Time, error) {
	return []record.RolloutState{{ID: "r", Plan: 1, State: execute.Running}}, 1, time.Now(), nil
}

func (s *rowsStore) RolloutRows(_ context.Context, _ string, _ int64, after string, limit int) (rows []record.RolloutRow, err error) {
	s.reads++
	for i := range s.rows {
		if id := fmt.Sprintf("d%05d", i); id > after && len(rows) < limit {
			rows = append(rows, record.RolloutRow{
				Row: plan.Row{Deployment: tko.DeploymentID(id), Kind: plan.Change, Wave: i % 2}, Progress: execute.Waiting, Reason: strconv.Itoa(s.reads),
			})
		}
	}
	return rows, nil
}

// All rows of a list are as of one moment, however many there are.
func TestRowsOfARolloutAreOfOneMoment(t *testing.T) {
	t.Parallel()
	store := &rowsStore{Store: openStore(t), rows: 2500}
	w := &world{Service: catalog.New(store, &validator{}, catalog.Options{}), t: t, ctx: t.Context(), store: store}
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "r", Package: pkg(t, "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{upgrade: {to: 't:v2'}, select: {templateIdPatterns: ['t:v1']}}]}\n")}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		sel          tko.RolloutRows
		rows, atMost int
	}{
		"all":                          {tko.RolloutRows{}, 2500, 1},
		"a page":                       {tko.RolloutRows{Limit: 20}, 20, 1},
		"a page after another":         {tko.RolloutRows{After: "d02000", Limit: 20}, 20, 1},
		"a large page":                 {tko.RolloutRows{Limit: 2000}, 2000, 1},
		"a page that selects few rows": {tko.RolloutRows{Deployment: "d02400", Limit: 1}, 1, 2},
	} {
		store.reads = 0
		moments := map[string]int{}
		n := 0
		test.sel.ID = "r"
		for row, err := range w.RolloutRows(w.ctx, test.sel) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			moments[row.Reason]++
		}
		if n != test.rows || len(moments) != 1 || store.reads > test.atMost {
			t.Errorf("%s: %d rows of %d moments by %d reads, want %d rows of one moment by at most %d reads", name, n, len(moments), store.reads, test.rows, test.atMost)
		}
	}
}
