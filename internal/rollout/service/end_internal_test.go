package service

import (
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

func TestEndOfRolloutIsExpectedFromRowsThatMoved(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	row := func(wave int, p execute.Progress, rows int, first, last time.Duration) record.RolloutCount {
		return record.RolloutCount{Wave: wave, Kind: plan.Change, Progress: p, Rows: rows, First: now.Add(-first), Last: now.Add(-last)}
	}
	never := record.RolloutCount{Wave: 0, Kind: plan.Change, Progress: execute.Waiting, Rows: 100}
	minutes := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	for name, c := range map[string]struct {
		counts []record.RolloutCount
		waves  []tko.RolloutWave
		want   time.Time
	}{
		"as fast as until now":         {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(10), 0), never}, want: now.Add(minutes(20))},
		"waves that follow are left":   {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(10), 0), never, row(1, execute.Waiting, 50, 0, 0)}, want: now.Add(minutes(30))},
		"earlier waves were slower":    {counts: []record.RolloutCount{row(0, execute.Healthy, 2, minutes(600), minutes(500)), row(1, execute.Healthy, 51, minutes(10), 0), row(1, execute.Waiting, 50, 0, 0)}, want: now.Add(minutes(10))},
		"rows that ended unseen":       {counts: []record.RolloutCount{{Kind: plan.Change, Progress: execute.Skipped, Rows: 9}, row(0, execute.Healthy, 51, minutes(10), 0), never}, want: now.Add(minutes(20))},
		"a person is waited for":       {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(10), 0), never}, waves: []tko.RolloutWave{{}, {Approval: approvalRequired}}},
		"nothing ended yet":            {counts: []record.RolloutCount{never, row(0, execute.Applied, 10, minutes(1), 0)}},
		"a wave begins":                {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(10), 0), row(1, execute.Applied, 10, 0, 0)}},
		"the last row hangs":           {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(10), minutes(3)), row(0, execute.Applied, 1, minutes(9), minutes(9))}},
		"it stands still since longer": {counts: []record.RolloutCount{row(0, execute.Healthy, 51, minutes(30), minutes(20)), never}},
	} {
		if got := expectedEnd(now, c.counts, c.waves); !got.Equal(c.want) {
			t.Errorf("%s: the end is %v, want %v", name, got, c.want)
		}
	}
}
