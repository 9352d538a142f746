package gitops

import (
	"fmt"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestWorkOnUnknownSourcesIsReleasedWithDelaysAndEnds(t *testing.T) {
	t.Parallel()
	c, now := New(nil, Options{}), time.Now()
	for i, want := range []int64{50, 100, 200, 400, 800, 1000, 1000} {
		result := c.leave("a", now)
		if result.Outcome != tko.WorkReleased || result.Retry.Milliseconds() != want {
			t.Errorf("release %d: %+v, want a delay of %d ms", i+1, result, want)
		}
		now = now.Add(result.Retry)
	}
	if result := c.leave("b", now); result.Retry != leaveFirst {
		t.Errorf("another source: %+v", result)
	}
	now = now.Add(leaveRun)
	if result := c.leave("a", now); result.Retry != leaveFirst {
		t.Errorf("after a pause: %+v", result)
	}
	n := 8
	for ; c.leave("a", now).Outcome == tko.WorkReleased; n++ {
		now = now.Add(time.Second)
	}
	if n != leaveLimit {
		t.Errorf("%d releases before the work ended, want %d", n, leaveLimit)
	}
	for range leaveLimit / 2 {
		c.leave("a", now)
	}
	for range leaveLimit { // regular work that others do
		now = now.Add(leaveMemory)
		if result := c.leave("a", now); result.Outcome != tko.WorkReleased || len(c.left) != 1 {
			t.Fatalf("%+v, with %v", result, c.left)
		}
	}
}

// released counts work by its result.
type released chan string

func (r released) Worked(_, result string, _ bool, _ time.Duration) {
	select {
	case r <- result:
	default:
	}
}

func (released) Lost(string) {}

// A controller leaves work on a source that it doesn't know to another one.
func TestControllersLeaveWorkOnUnknownSources(t *testing.T) {
	t.Parallel()
	data := grpctest.Start(t, client.Options{Author: tko.Author{Who: "test"}})
	results := make(released, 100)
	c := New(data, Options{Worker: "other", Observer: results, Sources: []Spec{{Name: "mine", Suspend: true, Interval: time.Hour}}})
	done := make(chan error, 1)
	go func() { done <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := data.EnqueueSources(t.Context(), []string{"yours"}, false, ""); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "its release", func() bool {
		select {
		case result := <-results:
			return result == string(tko.WorkReleased)
		default:
			return false
		}
	})
	eventually.NoError(t, "the work on the other source", func() error {
		items, err := data.ClaimWork(t.Context(), tko.ClaimWork{Queue: tko.QueueGitOps, Worker: "test", Max: 10, Lease: time.Minute, Wait: time.Second})
		if err == nil && (len(items) != 1 || items[0].Key != "yours" || items[0].Attempt != 0) {
			err = fmt.Errorf("claimed %+v", items)
		}
		return err
	})
}
