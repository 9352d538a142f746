package execute_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// staging is a rollout of one wave that stages, with n rows that need an image.
func staging(n int, change ...func(*spec.Stage)) (execute.Rollout, []execute.Row) {
	r, rs := rollout(), rows(n)
	r.Spec.Waves = []spec.Wave{{Name: "all"}}
	r.Spec.Stage = &spec.Stage{Within: 30 * time.Minute, Concurrent: 50, EveryNode: true, OnFailure: spec.StageWait}
	for _, c := range change {
		c(r.Spec.Stage)
	}
	for i := range rs {
		rs[i].Wave, rs[i].Images = 0, []string{"smf:2"}
	}
	return r, rs
}

// reportPull reports the pull of a row.
func reportPull(t *testing.T, r execute.Rollout, rs []execute.Row, i int, state, text string, now time.Time) {
	t.Helper()
	pull, ok := r.PullOf(rs[i])
	if !ok {
		t.Fatalf("row %d waits for no pull: %+v", i, rs[i].Stage)
	}
	to, changes := r.Staged(rs[i], pull.Key, state, text, now)
	if !changes {
		t.Fatalf("the report %s about row %d changes nothing", state, i)
	}
	rs[i] = to
}

func texts(out execute.Output) string {
	var all []string
	for _, b := range out.Blocks {
		all = append(all, b.String())
	}
	return strings.Join(all, "\n")
}

func TestRowsAreAdmittedWhenTheirImagesArePulled(t *testing.T) {
	t.Parallel()
	r, rs := staging(3)
	rs[2].Images = nil // it needs none
	out := next(r, rs, execute.Observation{}, noon)
	if fmt.Sprint(out.Pull, out.Admit, out.Update) != "[0 1] [2] [0 1]" || !strings.Contains(texts(out), "2 deployments wait: staging: their images are being pulled") {
		t.Fatalf("pull %v, admit %v, update %v\n%s", out.Pull, out.Admit, out.Update, texts(out))
	}
	rs = out.Rows
	rs[2] = rs[2].Apply(noon, false)
	again := next(r, rs, execute.Observation{}, noon)
	if len(again.Pull)+len(again.Admit)+len(again.Update) != 0 {
		t.Errorf("a second evaluation changes pulls %v, rows %v, and admits %v", again.Pull, again.Update, again.Admit)
	}
	if a, b := rs[0].Stage.Key, rs[1].Stage.Key; a == b || a == "" {
		t.Errorf("the keys of two sites are %q and %q", a, b)
	}
	reportPull(t, r, rs, 1, tko.StagingPulled, "", noon.Add(time.Minute))
	out = next(r, rs, execute.Observation{}, noon.Add(time.Minute))
	if fmt.Sprint(out.Admit) != "[1]" {
		t.Errorf("admits %v, want the one whose image is there\n%s", out.Admit, texts(out))
	}
}

// A report counts only for the pull that the row waits for.
func TestReportsOfOtherPullsChangeNothing(t *testing.T) {
	t.Parallel()
	r, rs := staging(1)
	rs = next(r, rs, execute.Observation{}, noon).Rows
	key := rs[0].Stage.Key
	refused := func(what string, r execute.Rollout, row execute.Row, key, state string) {
		t.Helper()
		if to, changes := r.Staged(row, key, state, "", noon); changes {
			t.Errorf("%s: %+v", what, to.Stage)
		}
	}
	refused("another key", r, rs[0], "0123", tko.StagingPulled)
	refused("another state", r, rs[0], key, "Done")
	applied := rs[0].Apply(noon, false)
	refused("a row that was applied", r, applied, key, tko.StagingFailed)
	done := r
	done.State = execute.Cancelled
	refused("a rollout that was cancelled", done, rs[0], key, tko.StagingPulled)
	reportPull(t, r, rs, 0, tko.StagingPulling, "half of it", noon)
	if _, changes := r.Staged(rs[0], key, tko.StagingPulling, "half of it", noon); changes {
		t.Error("the same text is new")
	}
}

// What no row waits for any more is removed at its site: the site is woken once, and what it
// reports, or its silence for the time of a pull, ends it.
func TestPullsOfRowsThatDoNotWaitAreEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cancelled bool
		report    string // of the site; "": it is silent
		after     time.Duration
		ends      bool
	}{
		"the rollout was cancelled":            {true, tko.StagingEnded, time.Second, true},
		"a row was skipped":                    {false, tko.StagingEnded, time.Second, true},
		"it was pulled just before":            {true, tko.StagingPulled, time.Second, true},
		"a late report that it is pulled":      {true, tko.StagingPulling, time.Second, false},
		"the site is silent":                   {true, "", 30 * time.Minute, false},
		"the site is silent until it is over":  {true, "", 32 * time.Minute, true},
		"a skipped one, until the end of time": {false, "", 32 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rs := staging(3)
			rs = next(r, rs, execute.Observation{}, noon).Rows
			key := rs[0].Stage.Key
			rs[0].Progress, rs[2].Progress, rs[2].Stage = execute.Skipped, execute.Skipped, execute.Staging{}
			if test.cancelled {
				r.State, rs[1].Progress = execute.Cancelled, execute.Skipped
			}
			at := noon.Add(time.Minute)
			out := next(r, rs, execute.Observation{}, at)
			if want := map[bool]string{true: "[0 1]", false: "[0]"}[test.cancelled]; fmt.Sprint(out.Pull) != want || fmt.Sprint(out.Update) != want || out.Wake.IsZero() {
				t.Fatalf("wakes the sites of %v, and again at %s; want those that pull", out.Pull, out.Wake)
			}
			rs = out.Rows
			if _, wanted := r.PullOf(rs[0]); wanted {
				t.Error("it is still wanted")
			}
			if p, over := r.EndOf(rs[0]); !over || p.Key != key {
				t.Errorf("%+v, %t; want the pull to be over", p, over)
			}
			out = next(r, rs, execute.Observation{}, at)
			if len(out.Pull) > 0 || len(out.Update) > 0 {
				t.Errorf("a second evaluation wakes %v and changes %v", out.Pull, out.Update)
			}
			at = at.Add(test.after)
			if test.report != "" {
				if _, changes := r.Staged(rs[0], "another", test.report, "", at); changes {
					t.Error("a report of another pull ends it")
				}
				rs[0], _ = r.Staged(rs[0], key, test.report, "", at)
			}
			rs = next(r, rs, execute.Observation{}, at).Rows
			if rs[0].Ends() == test.ends {
				t.Errorf("it is %+v", rs[0].Stage)
			}
		})
	}
}

// A pull that fails, or of which nothing is heard, is a reason on the row and is repeated under
// another key, ever more rarely; with Go the row is changed nevertheless.
func TestFailedAndLatePullsWaitOrGo(t *testing.T) {
	t.Parallel()
	for policy, goes := range map[spec.StageFailure]bool{spec.StageWait: false, spec.StageGo: true} {
		r, rs := staging(2, func(s *spec.Stage) { s.OnFailure = policy })
		rs = next(r, rs, execute.Observation{}, noon).Rows
		first := rs[0].Stage.Key
		reportPull(t, r, rs, 0, tko.StagingFailed, "image smf:2: ErrImagePull: not found", noon.Add(time.Second))
		out := next(r, rs, execute.Observation{}, noon.Add(2*time.Second))
		if goes {
			if fmt.Sprint(out.Admit) != "[0]" {
				t.Errorf("Go: admits %v\n%s", out.Admit, texts(out))
			}
		} else if len(out.Admit) != 0 || !strings.Contains(texts(out), "1 deployment waits: staging: image smf:2: ErrImagePull: not found; it is tried again") || !strings.Contains(texts(out), "tko rollout skip r") {
			t.Errorf("Wait: admits %v\n%s", out.Admit, texts(out))
		}
		late := noon.Add(32 * time.Minute)
		out = next(r, rs, execute.Observation{}, late)
		if s := out.Rows[1].Stage; s.State != tko.StagingFailed || !strings.Contains(s.Text, "not pulled within 30m0s: its site has not reported it") {
			t.Errorf("%s, late: %+v", policy, s)
		}
		if !goes {
			if s := out.Rows[0].Stage; s.State != tko.StagingPulling || s.Round != 2 || s.Key == first {
				t.Errorf("it isn't repeated: %+v", s)
			}
			if out.Wake.After(late.Add(time.Minute)) {
				t.Errorf("it is evaluated again at %s", out.Wake)
			}
		}
	}
}

func TestPullsAreBounded(t *testing.T) {
	t.Parallel()
	r, rs := staging(6, func(s *spec.Stage) { s.Concurrent, s.Per = 3, []spec.Per{{Key: "tac", Max: 2}} })
	for i := range rs {
		rs[i].Metadata = map[string]string{"tac": strconv.Itoa(i / 3)}
	}
	out := next(r, rs, execute.Observation{}, noon)
	if fmt.Sprint(out.Pull) != "[0 1 3]" {
		t.Fatalf("pulls %v, want two of tac 0 and one of tac 1: three at once", out.Pull)
	}
	rs = out.Rows
	out = next(r, rs, execute.Observation{}, noon.Add(time.Second))
	if len(out.Pull) != 0 {
		t.Errorf("begins %v while the limits are reached", out.Pull)
	}
	rs[0].Metadata = map[string]string{"tac": "9"} // a site that is relabelled frees nothing
	reportPull(t, r, rs, 3, tko.StagingPulled, "", noon)
	out = next(r, rs, execute.Observation{}, noon.Add(time.Second))
	if fmt.Sprint(out.Pull) != "[4]" {
		t.Errorf("begins %v, want one of tac 1", out.Pull)
	}
}

// Pulls begin before the window opens, changes when it is open.
func TestPullsBeginBeforeTheWindow(t *testing.T) {
	t.Parallel()
	r, rs := staging(1, func(s *spec.Stage) { s.Before = time.Hour })
	var days [7]bool
	for i := range days {
		days[i] = true
	}
	r.Spec.Windows = spec.Windows{{Days: days, From: 14 * time.Hour, To: 16 * time.Hour, Zone: time.UTC}} // noon is two hours before
	out := next(r, rs, execute.Observation{}, noon)
	if len(out.Pull)+len(out.Admit) != 0 || !out.Wake.Equal(noon.Add(time.Hour)) {
		t.Fatalf("pulls %v, admits %v, and is evaluated again at %s, want 13:00", out.Pull, out.Admit, out.Wake)
	}
	out = next(r, rs, execute.Observation{}, noon.Add(time.Hour))
	if fmt.Sprint(out.Pull) != "[0]" || len(out.Admit) != 0 || !strings.Contains(texts(out), "the window of their sites is closed") {
		t.Fatalf("an hour before: pulls %v, admits %v\n%s", out.Pull, out.Admit, texts(out))
	}
	rs = out.Rows
	reportPull(t, r, rs, 0, tko.StagingPulled, "", noon.Add(90*time.Minute))
	out = next(r, rs, execute.Observation{}, noon.Add(91*time.Minute))
	if len(out.Admit) != 0 {
		t.Error("it is changed before the window opens")
	}
	out = next(r, rs, execute.Observation{}, noon.Add(2*time.Hour))
	if fmt.Sprint(out.Admit) != "[0]" {
		t.Errorf("admits %v when the window is open\n%s", out.Admit, texts(out))
	}
}

// Nothing is pulled at what is stopped, frozen or suspended, in waves that aren't approved, or
// while the rollout is paused.
func TestNothingIsPulledWhereNothingMayBeDone(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*execute.Input){
		"stopped": func(in *execute.Input) { in.Stopped = func(int) (*tko.Stop, bool) { return &tko.Stop{ID: "s"}, true } },
		"frozen": func(in *execute.Input) {
			in.Freezes = []execute.Freeze{{Matches: func(tko.SiteID, map[string]string) bool { return true }, Until: noon.Add(time.Hour)}}
		},
		"suspended": func(in *execute.Input) { in.Suspended = func(int) (bool, bool) { return true, true } },
		"unknown":   func(in *execute.Input) { in.Metadata = func(int) (map[string]string, bool) { return nil, false } },
		"approval":  func(in *execute.Input) { in.Rollout.Spec.Waves[0].Approval = true },
		"paused":    func(in *execute.Input) { in.Rollout.State = execute.Paused },
		"next wave": func(in *execute.Input) {
			in.Rollout.Spec.Waves = append([]spec.Wave{{Name: "first", Count: 1}}, in.Rollout.Spec.Waves...)
			in.Rows[1].Wave = 1
			in.Rows[0].Images = nil
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rs := staging(2)
			if out := next(r, rs, execute.Observation{}, noon, change); len(out.Pull) != 0 {
				t.Errorf("pulls %v", out.Pull)
			}
		})
	}
}
