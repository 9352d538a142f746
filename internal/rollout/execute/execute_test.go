package execute_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func rollout() execute.Rollout {
	none := 0
	return execute.Rollout{
		ID: "r", Family: "r", State: execute.Running, Plan: plan.Digest{1},
		Spec: spec.Rollout{Waves: []spec.Wave{{Name: "canary", Count: 1}, {Name: "rest"}}, Limits: spec.Limits{Concurrent: 10, Failures: spec.Failures{Count: &none}}, Health: spec.Health{Within: 15 * time.Minute, Soak: time.Minute}, OnFailure: spec.Pause},
	}
}

func rows(n int) []execute.Row {
	out := make([]execute.Row, n)
	for i := range out {
		out[i] = execute.Row{Deployment: tko.DeploymentID(fmt.Sprint("d", i)), Site: tko.SiteID(fmt.Sprint("s", i)), Metadata: map[string]string{"tac": "1", "pair": "p"}, Kind: plan.Change, Wave: min(i, 1), Rank: i, Progress: execute.Waiting}
	}
	return out
}

func next(r execute.Rollout, rows []execute.Row, o execute.Observation, now time.Time, change ...func(*execute.Input)) execute.Output {
	var entries []execute.Entry
	for _, row := range rows {
		if row.Progress.InFlight() {
			entries = append(entries, execute.NewFlight(nil).EntryOf(r, row, nil))
		}
	}
	in := execute.Input{Rollout: r, Rows: rows, Flight: execute.NewFlight(entries), Now: now, Observed: func(tko.DeploymentID) execute.Observation { return o }}
	for _, c := range change {
		c(&in)
	}
	return execute.Next(in)
}

// Every command is valid, without effect, or refused with a remedy, in every state.
func TestEveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	for _, command := range execute.Commands() {
		for _, state := range execute.States() {
			to, changes, err := execute.Allow(execute.Rollout{ID: "r", State: state}, command)
			switch {
			case err != nil && (to != state || changes || !errors.Is(err, tko.ErrConflict) || strings.HasSuffix(err.Error(), ": ") || !strings.Contains(err.Error(), string(state))):
				t.Errorf("%s while %s: %v", command, state, err)
			case err == nil && changes != (to != state):
				t.Errorf("%s while %s: %s, %t", command, state, to, changes)
			}
			if err == nil { // a second run has no effect, or is refused
				if again, changes, err := execute.Allow(execute.Rollout{ID: "r", State: to}, command); err == nil && changes {
					t.Errorf("%s while %s goes on to %s", command, to, again)
				}
			}
		}
	}
}

func TestStartNamesThePlanAndLeavesBlockedRowsOutExplicitly(t *testing.T) {
	t.Parallel()
	r := rollout()
	r.State = execute.Planned
	for what, start := range map[string]func() (execute.Rollout, error){
		"use": func() (execute.Rollout, error) {
			return execute.Start(r, execute.Beginning{Plan: r.Plan, Named: "ffffffffffff"})
		},
		"--skip-blocked": func() (execute.Rollout, error) {
			return execute.Start(r, execute.Beginning{Plan: r.Plan, Named: r.Plan.String(), Blocked: execute.Blocked{Rows: 2}})
		},
		`rollout "other"`: func() (execute.Rollout, error) {
			return execute.Start(r, execute.Beginning{Plan: r.Plan, Named: r.Plan.String(), Held: map[tko.DeploymentID]string{"d": "other"}})
		},
	} {
		got, err := start()
		if got.State != execute.Planned || !errors.Is(err, tko.ErrConflict) || what != "use" && !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %s, %v", what, got.State, err)
		}
	}
	got, err := execute.Start(r, execute.Beginning{Plan: r.Plan, Named: r.Plan.String()[:12], Blocked: execute.Blocked{Rows: 2}, SkipBlocked: true})
	if err != nil || got.State != execute.Running {
		t.Errorf("%s, %v", got.State, err)
	}
}

func TestSoakIsCreditedAndInterruptionsBeginAnew(t *testing.T) {
	t.Parallel()
	h := spec.Health{Within: 15 * time.Minute, Soak: time.Minute}
	healthy, sick := execute.Observation{Healthy: true}, execute.Observation{Reason: "pods are not ready"}
	row := rows(1)[0].Apply(noon, false)
	at := noon
	see := func(after time.Duration, o execute.Observation, want execute.Progress) {
		t.Helper()
		at = at.Add(after)
		row = execute.Observe(row, o, h, at)
		if row.Progress != want {
			t.Errorf("after %s it is %s, want %s", at.Sub(noon), row.Progress, want)
		}
	}
	see(time.Second, sick, execute.Applied)
	see(time.Second, healthy, execute.Soaking)
	see(time.Hour, healthy, execute.Soaking) // a jump gives 30 s only
	see(-time.Hour, healthy, execute.Soaking)
	see(time.Second, sick, execute.Applied)
	see(time.Second, healthy, execute.Soaking)
	see(30*time.Second, healthy, execute.Soaking)
	see(30*time.Second, healthy, execute.Healthy)
}

// The time of a stop counts neither for the health nor for the soak of a row.
func TestClocksStandStillWhileStopped(t *testing.T) {
	t.Parallel()
	for _, o := range []execute.Observation{{Reason: "pods are not ready"}, {Healthy: true}} {
		run := func(stopped time.Duration) (failed, healthy time.Duration) {
			r, rs := rollout(), rows(1)
			rs[0] = rs[0].Apply(noon, false)
			stop := &tko.Stop{ID: "x", All: true, Created: noon.Add(20 * time.Second)}
			for at := time.Duration(0); at < 10*time.Hour; at += execute.Interval / 3 {
				out := next(r, rs, o, noon.Add(at), func(in *execute.Input) {
					in.Stopped = func(int) (*tko.Stop, bool) {
						if at >= 20*time.Second && at < 20*time.Second+stopped {
							return stop, true
						}
						return nil, true
					}
				})
				switch rs = out.Rows; rs[0].Progress {
				case execute.Failed:
					return at, 0
				case execute.Healthy:
					return 0, at
				default:
				}
			}
			t.Fatal("it goes on for ever")
			return 0, 0
		}
		failed, healthy := run(0)
		laterFailed, laterHealthy := run(5 * time.Hour)
		if failed > 0 && (laterFailed-failed-5*time.Hour).Abs() > execute.Interval || healthy > 0 && (laterHealthy-healthy-5*time.Hour).Abs() > execute.Interval {
			t.Errorf("without a stop it failed after %s or was healthy after %s; with one of 5 h after %s and %s", failed, healthy, laterFailed, laterHealthy)
		}
	}
}

func TestFailedDiffersFromBrokenBefore(t *testing.T) {
	t.Parallel()
	h := spec.Health{Within: time.Minute}
	row := execute.Observe(rows(1)[0].Apply(noon, false), execute.Observation{Reason: "no image"}, h, noon.Add(2*time.Minute))
	if row.Progress != execute.Failed || !row.Counted || !strings.Contains(row.Reason, "no image") {
		t.Errorf("%+v", row)
	}
	row = execute.Observe(row, execute.Observation{Healthy: true}, h, noon.Add(3*time.Minute))
	if row.Progress != execute.Healthy || !row.Counted {
		t.Errorf("late: %+v", row)
	}
	row = execute.Observe(rows(1)[0].Apply(noon, true), execute.Observation{}, h, noon.Add(2*time.Minute))
	if row.Progress != execute.AsBefore || row.Counted {
		t.Errorf("broken before: %+v", row)
	}
}

func TestBlocksAreReportedInWords(t *testing.T) {
	t.Parallel()
	apply := func(rs []execute.Row, n int) {
		for i := range n {
			rs[i] = rs[i].Apply(noon, false)
			rs[i].Progress = execute.Healthy
		}
	}
	tests := map[string]struct {
		change func(*execute.Rollout, []execute.Row)
		input  func(*execute.Input)
		admit  int
		code   string
		text   string
	}{
		"first wave":  {admit: 1, code: "Wave", text: `3 deployments wait: wave "canary" has not ended`},
		"second wave": {change: func(_ *execute.Rollout, rs []execute.Row) { apply(rs, 1) }, admit: 3},
		"approval":    {change: func(r *execute.Rollout, rs []execute.Row) { apply(rs, 1); r.Spec.Waves[1].Approval = true }, code: "Approval", text: `3 deployments wait: wave "rest" must be approved`},
		"approval of another plan": {change: func(r *execute.Rollout, rs []execute.Row) {
			apply(rs, 1)
			r.Spec.Waves[1].Approval, r.Approvals = true, map[int]execute.Approval{1: {Plan: plan.Digest{9}}}
		}, code: "Approval", text: "must be approved"},
		"concurrent": {change: func(r *execute.Rollout, rs []execute.Row) { apply(rs, 1); r.Spec.Limits.Concurrent = 2 }, admit: 2, code: "Concurrent", text: "1 deployment waits: 2 deployments are changed and not yet healthy"},
		"per": {change: func(r *execute.Rollout, rs []execute.Row) {
			apply(rs, 1)
			r.Spec.Limits.Per = []spec.Per{{Key: "tac", Max: 1}}
		}, admit: 1, code: "Per", text: `with tac "1"`},
		"apart": {change: func(r *execute.Rollout, rs []execute.Row) { apply(rs, 1); r.Spec.Limits.Apart = []string{"pair"} }, admit: 1, code: "Apart", text: `site "s1", whose pair is "p", too, is changed and not yet healthy: it waits until the deployment there is healthy, undone or waived (tko rollout waive)`},
		"apart from a placement": {
			change: func(r *execute.Rollout, rs []execute.Row) { apply(rs, 1); r.Spec.Limits.Apart = []string{"pair"} },
			input: func(in *execute.Input) {
				in.Flight.Add(execute.Entry{Deployment: "x", Site: "other", Values: map[string]string{"pair": "p"}})
			}, code: "Apart", text: `site "other"`,
		},
		"apart of another rollout": {
			change: func(_ *execute.Rollout, rs []execute.Row) { apply(rs, 1) },
			input: func(in *execute.Input) {
				in.Flight.Add(execute.Entry{Deployment: "x", Site: "other", Family: "o", Rollout: "o", Values: map[string]string{"pair": "p"}, Apart: []string{"pair"}})
			}, code: "Apart", text: `site "other"`,
		},
		"frozen": {input: func(in *execute.Input) {
			in.Freezes = []execute.Freeze{{Until: noon.Add(time.Hour), Reason: "audit", Matches: func(tko.SiteID, map[string]string) bool { return true }}}
		}, code: "Frozen", text: "frozen (audit) until 2026-11-23T13:00:00Z"},
		"stopped": {input: func(in *execute.Input) {
			in.Stopped = func(row int) (*tko.Stop, bool) {
				return &tko.Stop{ID: "x", All: true, Reason: "storm", Created: noon}, true
			}
		}, code: "Stopped", text: "1 deployment waits: a user stopped everything at 2026-11-23T12:00:00Z (storm), until tko resume x"},
		"suspended": {input: func(in *execute.Input) {
			in.Suspended, in.SuspendedUntil = func(row int) (bool, bool) { return row == 0, true }, noon.Add(time.Hour)
		}, code: "Suspended", text: "1 deployment waits: they are suspended, and looked at again until 2026-11-23T13:00:00Z"},
		"window": {change: func(r *execute.Rollout, _ []execute.Row) {
			r.Spec.Windows = spec.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, From: time.Hour, To: 2 * time.Hour, Zone: time.UTC}}
		}, code: "Window", text: "closed until 2026-11-24T01:00:00Z"},
		"unknown zone": {change: func(r *execute.Rollout, rs []execute.Row) {
			r.Spec.Windows = spec.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, To: 24 * time.Hour, Key: "tac", Zone: time.UTC}}
		}, code: "Zone", text: `the metadata "tac" of their sites is "1", which is no time zone: correct it until 2026-11-23T12:05:00Z`},
		"unknown zone, at any time": {change: func(r *execute.Rollout, rs []execute.Row) {
			r.AnyTime, r.Spec.Windows = true, spec.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, To: 24 * time.Hour, Key: "tac", Zone: time.UTC}}
		}, admit: 1, code: "Wave"},
		"held": {input: func(in *execute.Input) { in.Held = func(tko.DeploymentID) (string, bool) { return "o", true } }, code: "OtherRollout", text: `rollout "o"`},
		"paused": {change: func(r *execute.Rollout, _ []execute.Row) {
			r.State, r.Reason = execute.Paused, execute.Reason{Code: "User", Message: "by a user"}
		}, code: "Paused", text: "4 deployments wait: the rollout is paused: by a user"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r, rs := rollout(), rows(4)
			if test.change != nil {
				test.change(&r, rs)
			}
			out := next(r, rs, execute.Observation{}, noon, func(in *execute.Input) {
				if test.input != nil {
					test.input(in)
				}
			})
			if len(out.Admit) != test.admit {
				t.Errorf("%d rows are admitted: %v", len(out.Admit), out.Blocks)
			}
			if test.code == "" {
				return
			}
			if len(out.Blocks) == 0 || out.Blocks[0].Code != test.code || !strings.Contains(out.Blocks[0].String(), test.text) {
				t.Errorf("the blocks are %v", out.Blocks)
			}
		})
	}
}

func TestFailuresBeyondTheBudgetPauseOrUndo(t *testing.T) {
	t.Parallel()
	for policy, want := range map[spec.OnFailure]execute.State{spec.Pause: execute.Paused, spec.Undo: execute.Undoing, spec.Continue: execute.Running} {
		r, rs := rollout(), rows(3)
		r.Spec.OnFailure = policy
		rs[0] = rs[0].Apply(noon, false)
		out := next(r, rs, execute.Observation{}, noon.Add(time.Hour))
		if out.Rollout.State != want || out.StartUndo != (policy == spec.Undo) || (len(out.Admit) > 0) != (policy == spec.Continue) {
			t.Errorf("%s: %s (%s), %d admitted", policy, out.Rollout.State, out.Rollout.Reason.Message, len(out.Admit))
		}
		if policy == spec.Pause {
			if _, err := execute.Resume(out.Rollout, execute.Summarize(out.Rows), r.Plan, ""); !errors.Is(err, tko.ErrConflict) {
				t.Errorf("resume: %v", err)
			}
			waived, err := execute.Waive(out.Rows[0])
			if err != nil {
				t.Fatal(err)
			}
			out.Rows[0] = waived
			if _, err := execute.Resume(out.Rollout, execute.Summarize(out.Rows), r.Plan, ""); err != nil {
				t.Errorf("resume after waive: %v", err)
			}
		}
	}
}

func TestMovedRowPausesUntilItIsSkipped(t *testing.T) {
	t.Parallel()
	rs := rows(2)
	r, row := execute.Moved(rollout(), rs[0], errors.New("it was edited"))
	rs[0] = row
	if r.State != execute.Paused || row.Progress != execute.Stale || !strings.Contains(r.Reason.Message, "it was edited") {
		t.Errorf("%+v %+v", r, row)
	}
	if _, err := execute.Resume(r, execute.Summarize(rs), r.Plan, ""); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("%v", err)
	}
	rs[0], _ = execute.Skip(row, "by a user")
	if got, err := execute.Resume(r, execute.Summarize(rs), r.Plan, ""); err != nil || got.State != execute.Running {
		t.Errorf("%v", err)
	}
}

func TestUndoGoesFromTheLastWaveToTheFirst(t *testing.T) {
	t.Parallel()
	rs := rows(6)
	for i := range 5 { // the last one was never applied
		rs[i] = rs[i].Apply(noon, false)
		rs[i].Progress = execute.Healthy
	}
	rs[1].Kind, rs[2].Kind = plan.Create, plan.Delete
	rs[3].Progress = execute.Failed
	undo, left := execute.Undo(rs, 2, false)
	var got []string
	for _, row := range undo {
		got = append(got, fmt.Sprint(row.Wave, row.Rank, row.Kind, row.Deployment))
	}
	want := []string{fmt.Sprint(0, 0, plan.Change, "d3"), fmt.Sprint(0, 1, plan.Change, "d4"), fmt.Sprint(0, 2, plan.Create, "d2"), fmt.Sprint(0, 3, plan.Delete, "d1"), fmt.Sprint(1, 4, plan.Change, "d0")}
	if diff := cmp.Diff(want, got); diff != "" || len(left) != 0 {
		t.Error(diff)
	}
	rs[4].Progress = execute.Superseded
	undo, left = execute.Undo(rs, 2, false)
	if len(undo) != 4 || len(left) != 1 {
		t.Errorf("%d rows, %d left", len(undo), len(left))
	}
	undo, left = execute.Undo(rs, 2, true)
	if len(undo) != 5 || len(left) != 0 {
		t.Errorf("with force %d rows, %d left", len(undo), len(left))
	}
}

// A deployment that is unhealthy after its change counts at once, until it recovers; one in
// progress, or of which nothing is known, counts after within.
func TestUnhealthyDeploymentsStopAdmissionUntilTheyRecover(t *testing.T) {
	t.Parallel()
	failing := execute.Observation{Failing: true, Reason: "not healthy: image can't be pulled"}
	tests := map[string]struct {
		change   func(*execute.Rollout, []execute.Row)
		observed execute.Observation
		blocked  bool
		failing  int
	}{
		"unhealthy":     {observed: failing, blocked: true, failing: 1},
		"in progress":   {observed: execute.Observation{Reason: "not healthy: 1 of 2 pods are ready"}},
		"unknown":       {observed: execute.Observation{}},
		"healthy":       {observed: execute.Observation{Healthy: true}},
		"within budget": {change: func(r *execute.Rollout, _ []execute.Row) { one := 1; r.Spec.Limits.Failures.Count = &one }, observed: failing, failing: 1},
		"with one that failed before": {change: func(r *execute.Rollout, rs []execute.Row) {
			one := 1
			r.Spec.Limits.Failures.Count = &one
			rs[1].Progress, rs[1].Counted = execute.Failed, true
		}, observed: failing, blocked: true, failing: 1},
		"percent": {change: func(r *execute.Rollout, _ []execute.Row) {
			percent := 20.0
			r.Spec.Limits.Failures = spec.Failures{Percent: &percent}
		}, observed: failing, failing: 1},
		"broken before":     {change: func(_ *execute.Rollout, rs []execute.Row) { rs[0].Broken = true }, observed: failing},
		"whatever happens":  {change: func(r *execute.Rollout, _ []execute.Row) { r.Spec.OnFailure = spec.Continue }, observed: failing, failing: 1},
		"undo, if it fails": {change: func(r *execute.Rollout, _ []execute.Row) { r.Spec.OnFailure = spec.Undo }, observed: failing, blocked: true, failing: 1},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r, rs := rollout(), rows(6)
			for i := range rs {
				rs[i].Wave = 0
			}
			rs[0] = rs[0].Apply(noon, false)
			if test.change != nil {
				test.change(&r, rs)
			}
			out := next(r, rs, test.observed, noon.Add(10*time.Second))
			blocked := len(out.Admit) == 0 && len(out.Blocks) > 0 && out.Blocks[0].Code == "Failing"
			if blocked != test.blocked || !test.blocked && len(out.Admit) == 0 || out.Rollout.Failing != test.failing || out.Rollout.State != execute.Running {
				t.Errorf("%s, %d admitted, %d failing, %v", out.Rollout.State, len(out.Admit), out.Rollout.Failing, out.Blocks)
			}
			if test.blocked && (out.Blocks[0].Count == 0 || !strings.Contains(out.Blocks[0].Text, "recover within 15m0s")) {
				t.Errorf("the block says %v", out.Blocks[0])
			}
			if test.blocked && out.Wake.After(noon.Add(time.Minute)) {
				t.Errorf("it is looked at again at %s only", out.Wake)
			}
			// It recovers: the rollout goes on, and there was no failure.
			again := next(out.Rollout, out.Rows, execute.Observation{Healthy: true}, noon.Add(20*time.Second))
			if len(again.Admit) == 0 && len(out.Admit) == 0 && !rs[1].Counted {
				t.Errorf("after it recovered: %v", again.Blocks)
			}
			if again.Rollout.Failing != 0 || !rs[1].Counted && !again.Rollout.FirstFailure.IsZero() {
				t.Errorf("after it recovered: %+v", again.Rollout)
			}
			// It doesn't: it fails after within, as before.
			if late := next(out.Rollout, out.Rows, test.observed, noon.Add(time.Hour)); test.blocked && (late.Rollout.State == execute.Running || late.Rollout.Failing != 0) {
				t.Errorf("after within it is %s, with %d failing", late.Rollout.State, late.Rollout.Failing)
			}
		})
	}
}

func TestTheStatusHasTheSitesThatWereTouchedAfterTheFirstFailure(t *testing.T) {
	t.Parallel()
	r, rs := rollout(), rows(6)
	five := 5
	r.Spec.Limits.Failures.Count, r.Spec.Limits.Concurrent = &five, 100
	for i := range rs {
		rs[i].Wave = 0
	}
	rs[5].Site = rs[4].Site
	rs[0] = rs[0].Apply(noon, false)
	see := func(id tko.DeploymentID) func(*execute.Input) {
		return func(in *execute.Input) {
			in.Observed = func(one tko.DeploymentID) execute.Observation {
				return execute.Observation{Failing: one == id, Reason: "it crashes"}
			}
		}
	}
	out := next(r, rs, execute.Observation{}, noon.Add(time.Second), see("d0"))
	if got := out.Rollout; !got.FirstFailure.Equal(noon.Add(time.Second)) || got.Touched != 0 || got.Failing != 1 || len(out.Admit) != 5 {
		t.Errorf("%+v, %d admitted", got, len(out.Admit))
	}
	rs = out.Rows
	for _, i := range out.Admit {
		rs[i] = rs[i].Apply(noon.Add(2*time.Second), false)
	}
	out = next(out.Rollout, rs, execute.Observation{}, noon.Add(3*time.Second), see("d0"))
	if got := out.Rollout; !got.FirstFailure.Equal(noon.Add(time.Second)) || got.Touched != 4 {
		t.Errorf("five deployments at four sites: %+v", got)
	}
}

// A stop at the site of an unhealthy deployment doesn't let the rollout go on elsewhere.
func TestUnhealthyDeploymentsCountWhileTheirSitesAreStopped(t *testing.T) {
	t.Parallel()
	r, rs := rollout(), rows(3)
	for i := range rs {
		rs[i].Wave = 0
	}
	rs[0] = rs[0].Apply(noon, false)
	stop := &tko.Stop{ID: "x", Created: noon.Add(10 * time.Second)}
	out := next(r, rs, execute.Observation{Failing: true, Reason: "it crashes"}, noon.Add(time.Hour), func(in *execute.Input) {
		in.Stopped = func(row int) (*tko.Stop, bool) {
			if row == 0 {
				return stop, true
			}
			return nil, true
		}
	})
	if len(out.Admit) != 0 || out.Rollout.Failing != 1 || len(out.Blocks) == 0 || out.Blocks[0].Code != "Failing" || out.Rollout.State != execute.Running {
		t.Errorf("%s, %d admitted, %d failing, %v", out.Rollout.State, len(out.Admit), out.Rollout.Failing, out.Blocks)
	}
}

// Fail fast: over many sites, once more deployments are unhealthy than may fail, no more sites
// are changed than may be under way at once. A deployment is seen to be unhealthy a while after
// its change; what was changed meanwhile is what counts.
func TestFailureStopsALargeRolloutWithinItsConcurrency(t *testing.T) {
	t.Parallel()
	const sites, every = 600, 100 // 1 % of the sites fail
	lag := func(i int) time.Duration { return time.Duration(1+i%7) * time.Second }
	for _, concurrent := range []int{5, 20, 200} {
		for _, budget := range []int{0, 2} {
			t.Run(fmt.Sprintf("%d at once, %d may fail", concurrent, budget), func(t *testing.T) {
				t.Parallel()
				r, rs := rollout(), rows(sites)
				r.Spec.Limits.Concurrent, r.Spec.Limits.Failures.Count = concurrent, &budget
				index := map[tko.DeploymentID]int{}
				for i := range rs {
					rs[i].Wave, rs[i].Site = 0, tko.SiteID(fmt.Sprintf("s%04d", i))
					index[rs[i].Deployment] = i
				}
				fails := func(i int) bool { return i%every == every/2 }
				now, beyond, after, under := noon, false, 0, 0
				for step := 0; step < 10*sites && r.State == execute.Running; step++ {
					seen := 0
					out := next(r, rs, execute.Observation{}, now, func(in *execute.Input) {
						in.Observed = func(id tko.DeploymentID) execute.Observation {
							i := index[id]
							old := now.Sub(rs[i].Since) >= lag(i)
							return execute.Observation{Failing: old && fails(i), Healthy: old && !fails(i), Reason: "it crashes"}
						}
					})
					for i := range rs {
						if fails(i) && rs[i].Progress != execute.Waiting && now.Sub(rs[i].Since) >= lag(i) {
							seen++
						}
					}
					r, rs = out.Rollout, out.Rows
					for _, i := range out.Admit {
						rs[i] = rs[i].Apply(now, false)
					}
					flying := 0 // changed, and not seen to be healthy or not
					for i := range rs {
						if rs[i].Progress == execute.Applied && now.Sub(rs[i].Since) < lag(i) {
							flying++
						}
					}
					if beyond {
						after += len(out.Admit)
					} else if seen > budget {
						beyond, under, after = true, flying, len(out.Admit)
					}
					now = now.Add(time.Second)
					if len(out.Admit) == 0 && out.Wake.After(now) {
						now = out.Wake
					}
				}
				t.Logf("%d sites were changed after the budget was seen to be exceeded, with %d under way; the status says %d after the first failure", after, under, r.Touched)
				if !beyond || r.State == execute.Running || after+under > concurrent {
					t.Errorf("%d sites were changed after the budget was exceeded (%t), and %d were under way: at most %d may be", after, beyond, under, concurrent)
				}
				if budget == 0 && r.Touched > concurrent {
					t.Errorf("the status says that %d sites were changed after the first failure: at most %d may be", r.Touched, concurrent)
				}
			})
		}
	}
}
