package execute_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// away says that the agents of the sites of rows are not heard.
func away(rows ...int) func(*execute.Input) {
	return func(in *execute.Input) {
		in.Contact = func(row int) (execute.Contact, bool) {
			if slices.Contains(rows, row) {
				return execute.Contact{Away: "not heard since noon"}, true
			}
			return execute.Contact{}, true
		}
	}
}

func TestSitesThatAreAway(t *testing.T) {
	t.Parallel()
	one := 1
	for name, test := range map[string]struct {
		why      string
		policy   spec.Unreachable
		failures *int
		rows     string // progress, and ! if it counts as failed
		admitted int
		state    execute.State
		block    string
	}{
		"wait": {
			why: "the default: the wave goes on without it, and later waves wait", policy: spec.UnreachableWait,
			rows: "Waiting Waiting Waiting Waiting", admitted: 2, state: execute.Running, block: "1 deployment waits: the agents of their sites are not heard",
		},
		"skip": {
			why: "it is left out, and is no failure", policy: spec.UnreachableSkip,
			rows: "Waiting Skipped Waiting Waiting", admitted: 2, state: execute.Running,
		},
		"fail within the budget": {
			why: "it counts", policy: spec.UnreachableFail, failures: &one,
			rows: "Waiting Skipped! Waiting Waiting", admitted: 2, state: execute.Running,
		},
		"fail": {
			why: "the budget is exceeded: the next evaluation pauses", policy: spec.UnreachableFail,
			rows: "Waiting Skipped! Waiting Waiting", admitted: -1, state: execute.Paused,
		},
	} {
		r, all := rollout(), rows(4)
		r.Spec.Unreachable = test.policy
		if test.failures != nil {
			r.Spec.Limits.Failures.Count = test.failures
		}
		for i := range all {
			all[i].Wave = i / 3
		}
		out := next(r, all, execute.Observation{}, noon, away(1))
		if test.admitted >= 0 && len(out.Admit) != test.admitted {
			t.Errorf("%s: it admits %v (%s)", name, out.Admit, test.why)
		}
		var got []string
		for _, row := range out.Rows {
			text := string(row.Progress)
			if row.Counted {
				text += "!"
			}
			got = append(got, text)
			if row.Progress == execute.Skipped && !strings.Contains(row.Reason, "not heard since noon") {
				t.Errorf("%s: the reason is %q", name, row.Reason)
			}
		}
		text := strings.Join(got, " ")
		if text != test.rows {
			t.Errorf("%s: the rows are %s, not %s (%s)", name, text, test.rows, test.why)
		}
		if test.block != "" && !strings.Contains(blockTexts(out), test.block) {
			t.Errorf("%s: it is blocked by %s", name, blockTexts(out))
		}
		if test.policy != spec.UnreachableWait && !out.Wake.Equal(noon) {
			t.Errorf("%s: it is evaluated again at %s, and must count what was left out at once", name, out.Wake)
		}
		again := next(out.Rollout, out.Rows, execute.Observation{}, noon, away(1))
		if again.Rollout.State != test.state {
			t.Errorf("%s: then it is %s, not %s (%s)", name, again.Rollout.State, test.state, test.why)
		}
	}
}

// What waits names the first sites, each once, since when, and how many there are.
func TestWaitingRolloutNamesTheSitesThatAreAway(t *testing.T) {
	t.Parallel()
	r, all := rollout(), rows(6)
	for i := range all {
		all[i].Wave = 0
		all[i].Site = []tko.SiteID{"a/1", "a/1", "b/2", "c", "d", "e"}[i]
	}
	for n, want := range map[int]string{
		1: `1 deployment waits: the agents of their sites are not heard (condition Connected): "a/1" since 2026-11-22T12:00:00Z; to go on`,
		3: `3 deployments wait: the agents of their sites are not heard (condition Connected): "a/1" since 2026-11-22T12:00:00Z, "b/2"; to go on`,
		5: `5 deployments wait: the agents of their sites are not heard (condition Connected): "a/1" since 2026-11-22T12:00:00Z, "b/2", "c" since 2026-11-22T14:00:00Z and 1 other site; to go on`,
		6: `"c" since 2026-11-22T14:00:00Z and 2 other sites; to go on`,
	} {
		out := next(r, all, execute.Observation{}, noon, func(in *execute.Input) {
			in.Contact = func(row int) (execute.Contact, bool) {
				c := execute.Contact{Away: "not heard", AwaySince: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
				switch {
				case row >= n:
					return execute.Contact{}, true
				case row == 2:
					c.AwaySince = time.Time{}
				case row == 3:
					c.AwaySince = time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
				}
				return c, true
			}
		})
		if got := blockTexts(out); !strings.Contains(got, want) {
			t.Errorf("with %d rows away, it waits for %s, want %s", n, got, want)
		}
	}
}

func blockTexts(out execute.Output) string {
	var all []string
	for _, b := range out.Blocks {
		all = append(all, b.String())
	}
	return strings.Join(all, "; ")
}

// A rollout whose last rows are left out isn't done before they were counted.
func TestLastRowsThatAreAwayCount(t *testing.T) {
	t.Parallel()
	for policy, want := range map[spec.Unreachable]execute.State{spec.UnreachableSkip: execute.Done, spec.UnreachableFail: execute.Paused, spec.UnreachableWait: execute.Running} {
		r, all := rollout(), rows(1)
		r.Spec.Unreachable = policy
		out := next(r, all, execute.Observation{}, noon, away(0))
		if out.Rollout.State != execute.Running || len(out.Admit) > 0 {
			t.Errorf("%s: at first it is %s", policy, out.Rollout.State)
		}
		out = next(out.Rollout, out.Rows, execute.Observation{}, noon, away(0))
		if out.Rollout.State != want {
			t.Errorf("%s: it is %s, not %s", policy, out.Rollout.State, want)
		}
		if policy != spec.UnreachableFail {
			continue
		}
		waived, err := execute.Waive(out.Rows[0])
		if err != nil || waived.Counted || waived.Progress != execute.Skipped {
			t.Errorf("it can't be waived: %+v, %v", waived, err)
		}
	}
}

// A row is left out when it would be changed, and not before its window opens.
func TestSitesThatAreAwayOutsideOfTheirWindowAreNotLeftOut(t *testing.T) {
	t.Parallel()
	r, all := rollout(), rows(1)
	r.Spec.Unreachable = spec.UnreachableSkip
	r.Spec.Windows = spec.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, From: 1 * time.Hour, To: 2 * time.Hour, Zone: time.UTC}}
	out := next(r, all, execute.Observation{}, noon, away(0))
	if out.Rows[0].Progress != execute.Waiting || !strings.Contains(blockTexts(out), "window") {
		t.Errorf("it is %s: %s", out.Rows[0].Progress, blockTexts(out))
	}
}

// What is away is never healthy from memory, and a change that cuts a site off is a failure,
// whatever spec.unreachable is.
func TestChangesThatCutSitesOffFail(t *testing.T) {
	t.Parallel()
	for _, policy := range []spec.Unreachable{spec.UnreachableWait, spec.UnreachableSkip, spec.UnreachableFail} {
		r, all := rollout(), rows(1)
		r.Spec.Unreachable = policy
		all[0] = all[0].Apply(noon, false)
		healthy := execute.Observation{Healthy: true}
		out := next(r, all, healthy, noon.Add(time.Minute), away(0))
		p := out.Rows[0].Progress
		if p != execute.Applied || !strings.Contains(out.Rows[0].Reason, "not heard since noon") {
			t.Errorf("%s: it is %s, %q", policy, p, out.Rows[0].Reason)
		}
		out = next(r, out.Rows, healthy, noon.Add(16*time.Minute), away(0))
		if row := out.Rows[0]; row.Progress != execute.Failed || !row.Counted || out.Rollout.State != execute.Paused {
			t.Errorf("%s: it is %+v, and the rollout %s", policy, row, out.Rollout.State)
		}
		// When the site is back, the row becomes healthy, and the failure stays.
		back := next(out.Rollout, out.Rows, healthy, noon.Add(17*time.Minute))
		for n := range 10 {
			back = next(back.Rollout, back.Rows, healthy, noon.Add(17*time.Minute+time.Duration(n)*20*time.Second))
		}
		if row := back.Rows[0]; row.Progress != execute.Healthy || !row.Counted {
			t.Errorf("%s: back, it is %+v", policy, row)
		}
	}
}

// An undo changes deployments at sites that are away, and ends without them.
func TestUndosGoOnWithoutSitesThatAreAway(t *testing.T) {
	t.Parallel()
	r, all := rollout(), rows(2)
	r.ID, r.Undoes, all[1].Wave = "undo", "r", 0
	out := next(r, all, execute.Observation{}, noon, away(0))
	if len(out.Admit) != 2 {
		t.Fatalf("it admits %v: %s", out.Admit, blockTexts(out))
	}
	for i := range all {
		all[i] = all[i].Apply(noon, false)
	}
	out = next(r, all, execute.Observation{Healthy: true}, noon.Add(16*time.Minute), away(0))
	if row := out.Rows[0]; row.Progress != execute.Skipped || row.Counted || !strings.Contains(row.Reason, "returned") || out.Rollout.State != execute.Running {
		t.Errorf("it is %+v, and the undo %s", row, out.Rollout.State)
	}
	if len(out.Release) != 1 {
		t.Errorf("it frees %v", out.Release)
	}
}

// What isn't known now leaves rows as they are.
func TestUnknownSitesAreExaminedNext(t *testing.T) {
	t.Parallel()
	r, all := rollout(), rows(2)
	r.Spec.Unreachable = spec.UnreachableFail
	all[0] = all[0].Apply(noon, false)
	out := next(r, all, execute.Observation{Healthy: true}, noon.Add(time.Hour), func(in *execute.Input) {
		in.Contact = func(int) (execute.Contact, bool) { return execute.Contact{}, false }
	})
	if len(out.Update)+len(out.Admit) != 0 || out.Rows[0].Progress != execute.Applied || out.Rows[1].Progress != execute.Waiting {
		t.Errorf("it changes %v, admits %v", out.Update, out.Admit)
	}
}

// The owner of a site has the last word: nothing is changed there, whatever spec.unreachable is, and
// the clock of what was changed before stands.
func TestOwnersOfSitesHoldRolloutsBack(t *testing.T) {
	t.Parallel()
	held := func(in *execute.Input) {
		in.Contact = func(row int) (execute.Contact, bool) {
			if row != 0 {
				return execute.Contact{}, true
			}
			return execute.Contact{Held: "storm season", Since: noon.Add(time.Minute)}, true
		}
	}
	r, all := rollout(), rows(2)
	r.Spec.Unreachable, all[1].Wave = spec.UnreachableFail, 0
	out := next(r, all, execute.Observation{}, noon, held)
	if len(out.Admit) != 1 || out.Admit[0] != 1 || out.Rows[0].Progress != execute.Waiting || !strings.Contains(blockTexts(out), "1 deployment waits: the owners of their sites hold back changes (condition HeldByOwner): storm season") {
		t.Errorf("it admits %v: %s", out.Admit, blockTexts(out))
	}
	all = rows(1)
	all[0] = all[0].Apply(noon, false)
	out = next(r, all, execute.Observation{Reason: "not yet scheduled"}, noon.Add(time.Hour), held)
	if row := out.Rows[0]; row.Progress != execute.Applied || !row.Stands.Equal(noon.Add(time.Minute)) {
		t.Fatalf("it is %+v", row)
	}
	out = next(r, out.Rows, execute.Observation{Reason: "not yet scheduled"}, noon.Add(time.Hour+time.Minute))
	if row := out.Rows[0]; row.Progress != execute.Applied || !row.Stands.IsZero() || !row.Since.Equal(noon.Add(time.Hour)) {
		t.Errorf("after the hold, it is %+v", row)
	}
	out = next(r, out.Rows, execute.Observation{Reason: "not yet scheduled"}, noon.Add(time.Hour+16*time.Minute))
	if out.Rows[0].Progress != execute.Failed {
		t.Errorf("then it is %s", out.Rows[0].Progress)
	}
}
