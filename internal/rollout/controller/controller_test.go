package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/controller"
)

// A fake is a data controller with one rollout, which is due every second, and whose metrics
// are due until they are reported.
type fake struct {
	mutex    sync.Mutex
	due      time.Time
	advanced int
	metrics  []string
	tickets  []string // keys
	reported []string
}

func (f *fake) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(max(time.Until(f.next()), time.Millisecond)):
	}
	return []tko.WorkItem{{Queue: claim.Queue, Key: "r"}}, nil
}

func (f *fake) next() time.Time {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.due
}

func (*fake) RenewWork(_ context.Context, items []tko.WorkItem, _ time.Duration) ([]tko.WorkItem, error) {
	return items, nil
}

func (f *fake) FinishWork(context.Context, []tko.FinishedWork) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.due = time.Now().Add(time.Second)
	return nil
}

func (f *fake) AdvanceRollout(context.Context, tko.RolloutID) (time.Duration, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.advanced++
	return time.Second, nil
}

func (f *fake) RolloutMeasurements(_ context.Context, id tko.RolloutID) (all []tko.RolloutMeasurement, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, name := range f.metrics {
		all = append(all, tko.RolloutMeasurement{Rollout: id, Metric: name})
	}
	return all, nil
}

func (f *fake) ReportRolloutMeasurement(ctx context.Context, m tko.RolloutMeasurement) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.reported = append(f.reported, m.Metric)
	return errors.New("the data controller can't be reached") // it is due again
}

func (f *fake) RolloutTickets(_ context.Context, id tko.RolloutID) (all []tko.RolloutTicket, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, key := range f.tickets {
		all = append(all, tko.RolloutTicket{Rollout: id, Key: key})
	}
	return all, nil
}

func (f *fake) ReportRolloutTicket(_ context.Context, t tko.RolloutTicket) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.reported = append(f.reported, t.Key)
	return nil
}

// A ticket system that hangs delays neither the rollout nor other systems, and the end of the
// controller is no failure of the system: it isn't reported.
func TestHangingTicketSystemDelaysNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{tickets: []string{"hangs", "works"}}
		ctx, stop := context.WithCancel(t.Context())
		var mutex sync.Mutex
		asked := map[string]int{}
		ask := func(ctx context.Context, t tko.RolloutTicket) tko.RolloutTicket {
			mutex.Lock()
			asked[t.Key]++
			mutex.Unlock()
			if t.Key == "hangs" {
				<-ctx.Done()
				t.Failure = "it ended"
			}
			return t
		}
		done := make(chan error)
		go func() { done <- controller.Run(ctx, f, controller.Options{Ask: ask, Concurrency: 1}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if f.advanced < 30 || asked["hangs"] != 1 || asked["works"] < 30 || slices.Contains(f.reported, "hangs") || len(f.reported) < 30 {
			t.Errorf("advanced %d times, asked %v, reported %d", f.advanced, asked, len(f.reported))
		}
	})
}

// A server of metrics that hangs delays neither the rollout nor other metrics, is asked once at
// a time, and doesn't keep the controller from ending.
func TestHangingMetricDelaysNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{metrics: []string{"hangs", "works"}}
		ctx, stop := context.WithCancel(t.Context())
		var mutex sync.Mutex
		asked, ended := map[string]int{}, 0
		measure := func(ctx context.Context, m tko.RolloutMeasurement) tko.RolloutMeasurement {
			mutex.Lock()
			asked[m.Metric]++
			mutex.Unlock()
			if m.Metric == "hangs" {
				<-ctx.Done()
				mutex.Lock()
				ended++
				mutex.Unlock()
			}
			return m
		}
		done := make(chan error)
		go func() { done <- controller.Run(ctx, f, controller.Options{Measure: measure, Concurrency: 1}) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		f.mutex.Lock()
		advanced, reported := f.advanced, len(f.reported)
		f.mutex.Unlock()
		mutex.Lock()
		seen, hanging := fmt.Sprint(asked), asked["hangs"]
		mutex.Unlock()
		if advanced < 30 || reported < 30 || hanging != 1 {
			t.Errorf("advanced %d times, reported %d, measured %s", advanced, reported, seen)
		}
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if ended != 1 {
			t.Error("the controller ended before its measurement")
		}
	})
}
