package service

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// stagedRows returns rows of n sites, two at each, that wait for a pull of the images of their site. The second one of each site is
// unchanged, so the rollout doesn't apply it.
func stagedRows(n int) (rows []record.RolloutRow) {
	for i := range n {
		site := fmt.Sprintf("s/%d", i)
		staging := execute.Staging{Key: "k" + site, State: tko.StagingPulling, Since: time.Unix(0, 0)}
		rows = append(rows,
			record.RolloutRow{
				Row: plan.Row{Deployment: tko.DeploymentID(site + "-a"), Kind: plan.Change}, Site: site, Progress: execute.Waiting,
				RowDetails: record.RowDetails{Images: []string{"i"}, Stage: staging},
			},
			record.RolloutRow{Row: plan.Row{Deployment: tko.DeploymentID(site + "-b"), Kind: plan.Same}, Site: site},
		)
	}
	return rows
}

// The pulls of a site are found without a look at the rows of other sites, and are the same as with it, also after changes.
func TestPullsOfASiteAreThoseOfItsRows(t *testing.T) {
	t.Parallel()
	sp := spec.Rollout{Stage: &spec.Stage{Within: time.Hour}}
	known := &knownRows{}
	rows := stagedRows(10)
	state := record.RolloutState{ID: "r", State: execute.Running, Rows: 1}
	check := func(v record.RolloutView, why string) {
		t.Helper()
		if !known.update(&v) {
			t.Fatalf("%s: the changes don't fit", why)
		}
		for i := range 11 {
			site := tko.SiteID(fmt.Sprintf("s/%d", i))
			got, waiting := pullsOf(v, sp, site)
			all := v
			all.Execution, all.Of, all.AtSite = nil, nil, nil
			want, wantWaiting := pullsOf(all, sp, site)
			if diff := cmp.Diff(want, got); diff != "" || !cmp.Equal(wantWaiting, waiting) {
				t.Errorf("%s: the pulls at %s (-all rows +known): %s, of rows %v and %v", why, site, diff, wantWaiting, waiting)
			}
		}
		v.AtSite = map[tko.SiteID][]int{}
		if got, _ := pullsOf(v, sp, "s/1"); len(got) != 0 {
			t.Errorf("%s: the rows of all sites are looked at", why)
		}
	}
	check(record.RolloutView{State: state, Version: 1, Rows: rows}, "all rows")
	if got, _ := pullsOf(record.RolloutView{State: state, Rows: rows}, sp, "s/1"); len(got) != 1 {
		t.Fatalf("a site has the pulls %+v, want one", got)
	}
	changed := rows[2]
	changed.Stage.State = tko.StagingPulled
	check(record.RolloutView{State: state, Version: 2, Rows: []record.RolloutRow{changed}, Changes: true}, "a change")
	moved := rows[4]
	moved.Site = "s/9"
	v := record.RolloutView{State: state, Version: 3, Rows: []record.RolloutRow{moved}, Changes: true}
	if known.update(&v) {
		t.Error("a row of another site is treated as a change of progress")
	}
	check(record.RolloutView{State: state, Version: 3, Rows: append([]record.RolloutRow{moved}, rows[6:]...)}, "other rows")
}
