package tkoserver

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

const (
	maxRolloutNames = 20      // rollouts by name in metrics: those that were started first
	otherRollouts   = "other" // the name of all further ones, and also of a rollout with this ID
)

// The metrics of rollouts.
const (
	rolloutsMetric        = "tko_rollouts"
	rolloutRowsMetric     = "tko_rollout_rows"
	rolloutFailuresMetric = "tko_rollout_failures"
	rolloutFailingMetric  = "tko_rollout_failing"
	rolloutBlockedMetric  = "tko_rollout_blocked_seconds"
)

// activeStates are the states that rollouts of the metrics can have.
var activeStates = []execute.State{execute.Planning, execute.Running, execute.Paused, execute.Undoing, execute.Cancelled}

// progresses are the values of progress of rows.
var progresses = []execute.Progress{
	execute.Waiting, execute.Applied, execute.Soaking, execute.Healthy, execute.Failed, execute.Waived, execute.AsBefore, execute.Stale, execute.Skipped, execute.Superseded,
}

// rolloutReader reads the rollouts of a store.
type rolloutReader interface {
	RolloutStates(ctx context.Context, ids ...string) (states []record.RolloutState, version int64, now time.Time, err error)
	RolloutSummary(ctx context.Context, id string, examples int) (record.RolloutSummary, error)
}

// rolloutSampler samples the rollouts under way.
func rolloutSampler(store rolloutReader) *metrics.Sampler {
	return metrics.NewSampler(sampleQueues, []metrics.Gauge{
		{Name: rolloutsMetric, Help: "Rollouts under way, by state.", Labels: []string{"state"}},
		{Name: rolloutRowsMetric, Help: "Deployments of a rollout under way, by progress.", Labels: []string{"rollout", "progress"}},
		{Name: rolloutFailuresMetric, Help: "Deployments that failed in a rollout under way and were not waived.", Labels: []string{"rollout"}},
		{Name: rolloutFailingMetric, Help: "Deployments of a rollout under way that are unhealthy after their change and have not failed yet.", Labels: []string{"rollout"}},
		{Name: rolloutBlockedMetric, Help: "Time since a deployment of a rollout last made progress, while the rollout is paused or waits; 0 while it goes on.", Labels: []string{"rollout"}},
	}, func(ctx context.Context) ([]metrics.Value, error) { return rolloutValues(ctx, store) })
}

// A rolloutCount is what the metrics say of one rollout, or of all others.
type rolloutCount struct {
	rows              map[execute.Progress]int
	failures, failing int
	blocked           time.Duration
}

func rolloutValues(ctx context.Context, store rolloutReader) ([]metrics.Value, error) {
	states, _, _, err := store.RolloutStates(ctx)
	if err != nil {
		return nil, err
	}
	byState, byName := map[execute.State]int{}, map[string]*rolloutCount{}
	named := 0
	slices.SortStableFunc(states, func(a, b record.RolloutState) int { return a.Time.Compare(b.Time) })
	for _, st := range states {
		byState[st.State]++
		if st.Time.IsZero() { // it was not started
			continue
		}
		sum, err := store.RolloutSummary(ctx, st.ID, 0)
		if err != nil {
			return nil, err
		}
		if !sum.Found {
			continue
		}
		name := st.ID
		named++
		if named > maxRolloutNames {
			name = otherRollouts
		}
		if byName[name] == nil {
			byName[name] = &rolloutCount{rows: map[execute.Progress]int{}}
		}
		byName[name].add(sum)
	}
	var values []metrics.Value
	for _, state := range activeStates {
		values = append(values, metrics.Value{Name: rolloutsMetric, Value: float64(byState[state]), Labels: []string{string(state)}})
	}
	for name, c := range byName {
		for _, p := range progresses {
			values = append(values, metrics.Value{Name: rolloutRowsMetric, Value: float64(c.rows[p]), Labels: []string{name, string(p)}})
		}
		values = append(
			values,
			metrics.Value{Name: rolloutFailuresMetric, Value: float64(c.failures), Labels: []string{name}},
			metrics.Value{Name: rolloutFailingMetric, Value: float64(c.failing), Labels: []string{name}},
			metrics.Value{Name: rolloutBlockedMetric, Value: c.blocked.Seconds(), Labels: []string{name}},
		)
	}
	return values, nil
}

// add adds a rollout. Of several, the time is that of the one that is blocked the longest.
func (c *rolloutCount) add(sum record.RolloutSummary) {
	moved := sum.State.Time
	for _, count := range sum.Counts {
		if count.Wave < 0 {
			continue // nothing is done with it
		}
		c.rows[count.Progress] += count.Rows
		if count.Counted && count.Progress != execute.Waived {
			c.failures += count.Rows
		}
		if count.Last.After(moved) {
			moved = count.Last
		}
	}
	c.failing += sum.State.Failing
	if sum.State.State == execute.Paused || len(sum.State.Blocks) > 0 {
		c.blocked = max(c.blocked, sum.Now.Sub(moved))
	}
}
