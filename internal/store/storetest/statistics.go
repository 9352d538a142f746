package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// A counter is an observer that counts calls of itself.
type counter struct {
	mutex                                        sync.Mutex
	statements, writes, calls, conflicts, failed int
	reasons                                      []string
}

func (c *counter) Transaction(kind string, _ time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch kind {
	case "statement":
		c.statements++
	case "write":
		c.writes++
	}
}

func (c *counter) Committed(calls int, _ bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.calls += calls
}

func (c *counter) Conflicted() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.conflicts++
}

func (c *counter) Failed(reason string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.failed++
	c.reasons = append(c.reasons, reason)
}

// Statistics checks the statistics of a relational store, which must be empty, and what
// it reports to its observer.
func Statistics(t *testing.T, s *relational.Store) {
	t.Helper()
	var c counter
	s.Observe(&c)
	ctx := t.Context()
	keys := func(prefix string, n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint(prefix, i))
		}
		return keys
	}
	const queue = tko.QueueGitOps
	if err := s.EnqueueWork(ctx, queue, keys("item", 10), false); err != nil {
		t.Fatal(err)
	}
	claim := func(n int) []tko.WorkItem {
		items, _, err := s.ClaimWork(ctx, tko.ClaimWork{Queue: queue, Worker: "w", Max: n, Lease: time.Hour})
		if err != nil || len(items) != n {
			t.Fatalf("claimed %d items: %v", len(items), err)
		}
		return items
	}
	claim(3)
	for _, outcome := range []tko.WorkOutcome{tko.WorkFailed, tko.WorkLater} {
		if err := s.FinishWork(ctx, []tko.FinishedWork{{Item: claim(1)[0], Outcome: outcome, Retry: time.Hour}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	before := c.statements
	st, err := s.Statistics(ctx, queue, tko.QueueEvents)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.statements - before; n != 4 {
		t.Errorf("the statistics of two queues took %d statements, want 4", n)
	}
	if len(st.Queues) != 2 || st.Queues[0].Oldest <= 0 {
		t.Fatalf("queues %+v: want two, and an age", st.Queues)
	}
	st.Queues[0].Oldest = 0
	want := []tko.QueueStatistics{{Queue: queue, Ready: 5, Running: 3, Retrying: 1, Waiting: 1}, {Queue: tko.QueueEvents}}
	if diff := cmp.Diff(want, st.Queues); diff != "" {
		t.Error(diff)
	}

	conditions := []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Unreachable"}}
	if _, err := s.Commit(ctx, record.Ungated(site("a", func(w *record.Write) { w.Record.Conditions = conditions }), site("b"))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, record.Ungated(site("a"))); !errors.Is(err, tko.ErrConflict) {
		t.Fatalf("the second creation: %v", err)
	}
	if c.calls != 1 || c.conflicts != 1 || c.writes == 0 || c.failed != 0 {
		t.Errorf("counted %d calls, %d conflicts, %d writes, failures %v", c.calls, c.conflicts, c.writes, c.reasons)
	}
	var reasons []string
	if err := s.SiteConditions(ctx, func(all []tko.Condition) {
		reason := "none"
		for _, one := range all {
			reason = one.Reason
		}
		reasons = append(reasons, reason)
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(reasons)
	if diff := cmp.Diff([]string{"Unreachable", "none"}, reasons); diff != "" {
		t.Error(diff)
	}
	if size, err := s.Size(ctx); err != nil || size < 10_000 || size > 1<<30 {
		t.Errorf("the database has %d bytes: %v", size, err)
	}
	if used, idle, limit := s.Connections(); used < 0 || idle < 0 || limit < 2 || used+idle > limit {
		t.Errorf("%d connections of %d are used, and %d idle", used, limit, idle)
	}
	if full, _ := s.DiskFull(ctx); full {
		t.Error("the disk is full")
	}
}
