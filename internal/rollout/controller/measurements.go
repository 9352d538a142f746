package controller

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tko-orchestrator/tko"
)

// maxMeasurements limits the measurements that run at once. One beyond it is due again.
const maxMeasurements = 64

// measurements run outside of claims of work: a server that doesn't respond must not keep a
// rollout from being observed.
type measurements struct {
	client  Client
	measure Measure
	log     *slog.Logger

	under sync.WaitGroup
	mutex sync.Mutex
	busy  map[string]bool // by rollout and metric
}

// begin starts the measurements of a rollout that are due and don't run yet. They end with
// the context.
func (m *measurements) begin(ctx context.Context, id tko.RolloutID) {
	due, err := m.client.RolloutMeasurements(ctx, id)
	if err != nil {
		m.log.WarnContext(ctx, "measurements not known", "rollout", id, "err", err)
		return
	}
	for _, one := range due {
		key := string(id) + " " + one.Metric
		if !m.take(key) {
			continue
		}
		m.under.Go(func() {
			defer m.release(key)
			if err := m.client.ReportRolloutMeasurement(ctx, m.measure(ctx, one)); err != nil && ctx.Err() == nil {
				m.log.WarnContext(ctx, "measurement not reported", "rollout", id, "metric", one.Metric, "err", err)
			}
		})
	}
}

func (m *measurements) take(key string) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.busy[key] || len(m.busy) >= maxMeasurements {
		return false
	}
	m.busy[key] = true
	return true
}

func (m *measurements) release(key string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.busy, key)
}
