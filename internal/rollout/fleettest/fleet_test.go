package fleettest

import (
	"os"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/test/soak"
)

// seeds returns the number of runs; TKO_ROLLOUT_SEEDS changes it, for long runs.
func seeds(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("TKO_ROLLOUT_SEEDS")
	if text == "" {
		return uint64(soak.Rounds(t, 250, 1000))
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNoLimitIsExceededWhateverHappens(t *testing.T) {
	t.Parallel()
	sum := Stats{Final: map[execute.State]int{}}
	for seed := range seeds(t) {
		s, err := Run(seed, None)
		if err != nil {
			t.Fatal(err)
		}
		sum.Commits += s.Commits
		sum.Applied += s.Applied
		sum.Undone += s.Undone
		sum.Failed += s.Failed
		sum.Stale += s.Stale
		sum.Superseded += s.Superseded
		sum.Late += s.Late
		sum.AsBefore += s.AsBefore
		sum.Kills += s.Kills
		sum.Jumps += s.Jumps
		sum.Stopped += s.Stopped
		sum.Recovered += s.Recovered
		sum.Pulled += s.Pulled
		sum.Unpulled += s.Unpulled
		for state, n := range s.Final {
			sum.Final[state] += n
		}
	}
	t.Logf("%+v", sum)
	for what, n := range map[string]int{
		"applied": sum.Applied, "undone": sum.Undone, "failed": sum.Failed, "stale": sum.Stale, "superseded": sum.Superseded, "late": sum.Late, "as before": sum.AsBefore, "kills": sum.Kills, "jumps": sum.Jumps, "stopped": sum.Stopped, "recovered": sum.Recovered, "pulled": sum.Pulled, "applied without images": sum.Unpulled,
		"Done": sum.Final[execute.Done], "Undone": sum.Final[execute.Undone], "Cancelled": sum.Final[execute.Cancelled],
	} {
		if n == 0 {
			t.Errorf("no run has %s", what)
		}
	}
}

func TestOneSeedGivesOneRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		a, errA := Run(seed, None)
		b, errB := Run(seed, None)
		if a.Commits != b.Commits || a.Applied != b.Applied || a.Failed != b.Failed || (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}

// Each defect breaks a rule, which the checks notice within a few runs.
func TestTheChecksNoticeEachDefect(t *testing.T) {
	t.Parallel()
	for _, defect := range Defects() {
		t.Run(string(defect), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(400) {
				if _, err := Run(seed, defect); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("no check noticed it in 400 runs")
		})
	}
}
