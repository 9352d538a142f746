package tkoserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// A rolloutFake has the rollouts of a test.
type rolloutFake struct {
	sums []record.RolloutSummary
	err  error
}

func (f rolloutFake) RolloutStates(context.Context, ...string) (states []record.RolloutState, _ int64, _ time.Time, err error) {
	for _, sum := range f.sums {
		states = append(states, sum.State)
	}
	return states, 0, time.Time{}, f.err
}

func (f rolloutFake) RolloutSummary(_ context.Context, id string, _ int) (record.RolloutSummary, error) {
	for _, sum := range f.sums {
		if sum.State.ID == id {
			return sum, nil
		}
	}
	return record.RolloutSummary{}, nil
}

func TestMetricsOfRolloutsCountRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	started := now.Add(-3 * time.Hour)
	f := rolloutFake{sums: []record.RolloutSummary{
		{Found: true, Now: now, State: record.RolloutState{ID: "waits", State: execute.Running, Time: started, Blocks: []string{"wave \"rest\" waits for an approval"}, Failing: 2}, Counts: []record.RolloutCount{
			{Wave: -1, Progress: execute.Healthy, Rows: 100},
			{Progress: execute.Healthy, Rows: 3, Last: now.Add(-time.Hour)},
			{Progress: execute.Healthy, Counted: true, Rows: 1},
			{Progress: execute.Waived, Counted: true, Rows: 7},
			{Wave: 1, Progress: execute.Waiting, Rows: 40},
		}},
		{Found: true, Now: now, State: record.RolloutState{ID: "paused", State: execute.Paused, Time: started}},
		{Found: true, Now: now, State: record.RolloutState{ID: "goes-on", State: execute.Running, Time: started}, Counts: []record.RolloutCount{{Progress: execute.Failed, Counted: true, Rows: 2}}},
		{Found: true, Now: now, State: record.RolloutState{ID: "planned-now", State: execute.Planning}},
	}}
	values, err := rolloutValues(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, v := range values {
		if v.Value != 0 {
			got[fmt.Sprint(v.Name, v.Labels)] = v.Value
		}
	}
	want := map[string]float64{
		"tko_rollouts[Running]": 2, "tko_rollouts[Paused]": 1, "tko_rollouts[Planning]": 1,
		"tko_rollout_rows[waits Healthy]": 4, "tko_rollout_rows[waits Waived]": 7, "tko_rollout_rows[waits Waiting]": 40, "tko_rollout_rows[goes-on Failed]": 2,
		"tko_rollout_failures[waits]": 1, "tko_rollout_failures[goes-on]": 2, "tko_rollout_failing[waits]": 2,
		"tko_rollout_blocked_seconds[waits]": 3600, "tko_rollout_blocked_seconds[paused]": 3 * 3600,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.err = errors.New("away")
	if values, err := rolloutValues(t.Context(), f); err == nil || values != nil {
		t.Errorf("while the database is away: %v, %v", values, err)
	}
}

// However many rollouts run, the number of series is bounded, and none is left out.
func TestMetricsOfManyRolloutsAreBounded(t *testing.T) {
	t.Parallel()
	const rollouts = 500
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	f := rolloutFake{}
	for n := range rollouts {
		f.sums = append(f.sums, record.RolloutSummary{
			Found: true, Now: now, State: record.RolloutState{ID: fmt.Sprint("r", n), State: execute.Running, Time: now.Add(time.Duration(n-rollouts) * time.Minute), Blocks: []string{"x"}},
			Counts: []record.RolloutCount{{Progress: execute.Failed, Counted: true, Rows: 1}},
		})
	}
	values, err := rolloutValues(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	failures, series := 0.0, map[string]bool{}
	for _, v := range values {
		at := fmt.Sprint(v.Name, v.Labels)
		if series[at] {
			t.Errorf("%s is there twice", at)
		}
		series[at] = true
		if v.Name == rolloutFailuresMetric {
			failures += v.Value
		}
		if at == "tko_rollout_blocked_seconds[other]" && v.Value != (rollouts-maxRolloutNames)*60 {
			t.Errorf("the others are blocked for %g seconds", v.Value)
		}
	}
	if failures != rollouts || len(series) > 300 || !series["tko_rollout_failures[r0]"] || !series["tko_rollout_failures[other]"] {
		t.Errorf("%g failures in %d series", failures, len(series))
	}
}
