package work_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/work"
)

// A counter is an observer that records calls of itself.
type counter struct {
	mu   sync.Mutex
	seen []string
}

func (c *counter) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, text)
}

func (c *counter) Worked(queue, result string, again bool, took time.Duration) {
	c.note(fmt.Sprint(queue, " ", result, " ", again, " ", took))
}

func (c *counter) Lost(queue string) { c.note(queue + " lost") }

// Each reconciliation is counted with its result and duration; one whose lease was
// lost is counted as that only.
func TestReconciliationsAndLostLeasesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("done", "failed")
		var c counter
		l := &work.Loop{Client: q, Queue: "q", Observer: &c, Lease: 9 * time.Second, Do: func(ctx context.Context, item tko.WorkItem) work.Result {
			time.Sleep(time.Second)
			if item.Key == "failed" {
				return work.Result{Err: errors.New("no")}
			}
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(time.Minute) })
		slices.Sort(c.seen)
		if diff := cmp.Diff([]string{"q done false 1s", "q failed false 1s"}, c.seen); diff != "" {
			t.Error(diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("lost")
		q.lose = true
		var c counter
		l := &work.Loop{Client: q, Queue: "q", Observer: &c, Lease: 9 * time.Second, Do: func(ctx context.Context, _ tko.WorkItem) work.Result {
			<-ctx.Done()
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(time.Minute) })
		if diff := cmp.Diff([]string{"q lost"}, c.seen); diff != "" {
			t.Error(diff)
		}
	})
}
