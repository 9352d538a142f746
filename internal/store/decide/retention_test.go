package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

func TestOldChangesSupersedeRevisions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why               string
		op                tko.Op
		revision, current int64
		keep              int
		want              int64
	}{
		"a deletion":               {"nothing of the record is needed", tko.OpDeleted, 4, 0, 2, 4},
		"an old deletion":          {"the record was created again: at the next position, it still existed", tko.OpDeleted, 4, 6, 0, 0},
		"a revision":               {"the newest ones stay", tko.OpWritten, 9, 10, 3, 7},
		"a revision in between":    {"it is the state as of the next position", tko.OpWritten, 5, 10, 3, 4},
		"few revisions":            {"all stay", tko.OpWritten, 2, 3, 3, 0},
		"all are retained":         {"", tko.OpWritten, 9, 10, 0, 0},
		"a status":                 {"revisions of the record may be too many by now", tko.OpStatus, 5, 10, 3, 4},
		"of a record that is gone": {"its deletion decides", tko.OpWritten, 2, 0, 1, 0},
	}
	for name, test := range tests {
		if got := decide.Superseded(test.op, test.revision, test.current, test.keep); got != test.want {
			t.Errorf("%s: %d, want %d: %s", name, got, test.want, test.why)
		}
	}
}

func TestLongestPolicyOfADeploymentCounts(t *testing.T) {
	t.Parallel()
	tier, err := tko.ParseValuePattern("core")
	if err != nil {
		t.Fatal(err)
	}
	all := record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll}
	core := all
	core.SiteMetadata = map[string]tko.Pattern{"tier": tier}
	policies := []record.Longer{{Name: "short", Keep: time.Hour, Select: all}, {Name: "long", Keep: 2 * time.Hour, Select: core}, {Name: "as long", Keep: 2 * time.Hour, Select: core}}
	d := record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "d"}, Revision: 1, Site: "s"}
	s := record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}, Revision: 1, Metadata: &record.Metadata{Effective: map[string]string{"tier": "core"}}}
	for want, site := range map[string]record.Record{"long": s, "short": {}} {
		if got := decide.LongestPolicy(policies, d, record.Record{}, site); got != want {
			t.Errorf("at the site %+v: %q, want %q", site, got, want)
		}
	}
	if got := decide.LongestPolicy(policies[1:], d, record.Record{}, record.Record{}); got != "" {
		t.Errorf("without a policy: %q", got)
	}
}

func TestAppliedRowsGetTheRevisionsOfTheirDeployments(t *testing.T) {
	t.Parallel()
	row := func(id string, progress execute.Progress, applied int64) record.RolloutRow {
		return record.RolloutRow{Row: plan.Row{Deployment: tko.DeploymentID(id), Revision: 2}, Progress: progress, Applied: applied}
	}
	w := &record.RolloutWrite{Rows: []record.RolloutRow{row("changed", execute.Applied, 0), row("gone", execute.Applied, 0), row("before", execute.Applied, 1), row("waits", execute.Waiting, 0)}}
	rows := decide.RolloutRows(w, func(id tko.DeploymentID) *record.Record {
		if id != "changed" {
			return nil
		}
		return &record.Record{UID: "u", Revision: 7}
	})
	var got [][2]int64
	for _, r := range rows {
		got = append(got, [2]int64{r.Applied, r.Chain})
	}
	if diff := cmp.Diff([][2]int64{{7, 7}, {2, 2}, {1, 0}, {0, 0}}, got); diff != "" || rows[0].UID != "u" {
		t.Errorf("applied and newest revisions (-want +got), UID %q:\n%s", rows[0].UID, diff)
	}
	if w.Rows[0].Applied != 0 {
		t.Error("the rows of the caller were changed")
	}
}

func TestRolloutThatStartedFirstHolds(t *testing.T) {
	t.Parallel()
	state := func(id, family string, started int64, s execute.State) *record.RolloutState {
		return &record.RolloutState{ID: id, Family: family, Started: started, State: s}
	}
	own := state("own", "own", 5, execute.Running)
	tests := map[string]struct {
		why    string
		h, own *record.RolloutState
		want   bool
	}{
		"an earlier one":         {"", state("h", "h", 4, execute.Running), own, true},
		"a later one":            {"", state("h", "h", 6, execute.Running), own, false},
		"one that isn't started": {"", state("h", "h", 0, execute.Running), own, false},
		"before the start":       {"each that was started holds", state("h", "h", 6, execute.Running), state("own", "own", 0, execute.Planned), true},
		"one of the same family": {"an undo follows its rollout", state("h", "own", 4, execute.Running), own, false},
		"one that is done":       {"", state("h", "h", 4, execute.Done), own, false},
		"the rollout itself":     {"", own, own, false},
	}
	for name, test := range tests {
		if got := decide.Holds(test.h, test.own); got != test.want {
			t.Errorf("%s: %t, want %t %s", name, got, test.want, test.why)
		}
	}
}
