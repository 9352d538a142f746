package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/work"
)

// A queue is a data controller with one queue, in memory.
type queue struct {
	mu       sync.Mutex
	due      []string // keys
	claims   int
	calls    []int // number of items of each claim that returned any
	asked    []int // Max of each claim
	until    map[string]time.Time
	finished []tko.FinishedWork
	finishes int
	away     error // error of every call, if not nil
	hang     bool  // calls hang while it is away
	lose     bool  // renewals return no item
	renewals int
	slow     time.Duration // duration of a claim
	added    chan struct{}
}

func newQueue(keys ...string) *queue {
	return &queue{due: keys, until: map[string]time.Time{}, added: make(chan struct{}, 1)}
}

func (q *queue) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	timer := time.NewTimer(claim.Wait)
	defer timer.Stop()
	for {
		items, err := q.claim(claim)
		select {
		case <-ctx.Done():
			return nil, ctx.Err() // the claimed items are lost
		case <-time.After(q.slow):
		}
		if err != nil || len(items) > 0 {
			return items, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, nil
		case <-q.added:
		}
	}
}

func (q *queue) claim(claim tko.ClaimWork) ([]tko.WorkItem, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away != nil {
		return nil, q.away
	}
	var items []tko.WorkItem
	for len(q.due) > 0 && len(items) < claim.Max {
		q.claims++
		items = append(items, tko.WorkItem{Queue: claim.Queue, Key: q.due[0], Claim: strconv.Itoa(q.claims)})
		q.until[q.due[0]] = time.Now().Add(claim.Lease)
		q.due = q.due[1:]
	}
	if len(items) > 0 {
		q.calls = append(q.calls, len(items))
		q.asked = append(q.asked, claim.Max)
	}
	return items, nil
}

func (q *queue) add(keys ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due = append(q.due, keys...)
	select {
	case q.added <- struct{}{}:
	default:
	}
}

func (q *queue) RenewWork(_ context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away != nil {
		return nil, q.away
	}
	q.renewals++
	if q.lose {
		return nil, nil
	}
	for _, item := range items {
		q.until[item.Key] = time.Now().Add(lease)
	}
	return items, nil
}

func (q *queue) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	if q.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.away != nil {
		return q.away
	}
	q.finishes++
	q.finished = append(q.finished, items...)
	return nil
}

func (q *queue) setAway(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.away = err
}

// outcomes returns the result of each key: "outcome error".
func (q *queue) outcomes() map[string]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[string]string{}
	for _, f := range q.finished {
		if _, twice := all[f.Item.Key]; twice {
			all[f.Item.Key] = "finished twice"
			continue
		}
		all[f.Item.Key] = strings.TrimSpace(fmt.Sprintf("%s %s", f.Outcome, f.Error))
	}
	return all
}

// run runs a loop in a synctest bubble until f returns, and stops it.
func run(t *testing.T, l *work.Loop, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	f()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestResultsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("done", "error", "later", "panic", "retry")
		l := &work.Loop{Client: q, Queue: "q", Do: func(_ context.Context, item tko.WorkItem) work.Result {
			switch item.Key {
			case "error":
				return work.Result{Err: errors.New("no luck")}
			case "later":
				return work.Result{Outcome: tko.WorkLater, Retry: time.Second}
			case "panic":
				panic("ouch")
			case "retry":
				return work.Result{Outcome: tko.WorkFailed, Err: errors.New("stalled"), Retry: time.Hour}
			}
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(time.Second) })
		want := map[string]string{
			"done": "done", "error": "failed no luck", "later": "later", "panic": "failed panic: ouch", "retry": "failed stalled",
		}
		if diff := cmp.Diff(want, q.outcomes()); diff != "" {
			t.Error(diff)
		}
		for _, f := range q.finished {
			want := map[string]time.Duration{"later": time.Second, "retry": time.Hour}[f.Item.Key]
			if f.Retry != want {
				t.Errorf("%s: retry after %v, want %v", f.Item.Key, f.Retry, want)
			}
		}
		if q.finishes != 1 {
			t.Errorf("concurrent results took %d calls, want 1", q.finishes)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		for i := range 100 {
			keys = append(keys, strconv.Itoa(i))
		}
		q := newQueue(keys...)
		var mu sync.Mutex
		running, most := 0, 0
		l := &work.Loop{Client: q, Queue: "q", Concurrency: 10, Do: func(context.Context, tko.WorkItem) work.Result {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(5 * time.Second) })
		if most != 10 {
			t.Errorf("%d items ran at the same time, want 10", most)
		}
		if n := len(q.outcomes()); n != 100 {
			t.Errorf("%d items were finished, want 100", n)
		}
		if len(q.calls) > 50 {
			t.Errorf("claiming 100 items took %d calls, want 50 at most: %v", len(q.calls), q.calls)
		}
		if slices.Max(q.asked) > 10 {
			t.Errorf("claims asked for %v items, want 10 at most", q.asked)
		}
	})
}

func TestLongWorkRenewsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("long")
		l := &work.Loop{Client: q, Queue: "q", Lease: 9 * time.Second, Do: func(ctx context.Context, item tko.WorkItem) work.Result {
			for range 60 {
				time.Sleep(time.Second)
				q.mu.Lock()
				left := time.Until(q.until[item.Key])
				q.mu.Unlock()
				if left <= 0 || ctx.Err() != nil {
					return work.Result{Err: fmt.Errorf("the lease has expired: %v left, %w", left, context.Cause(ctx))}
				}
			}
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(2 * time.Minute) })
		if diff := cmp.Diff(map[string]string{"long": "done"}, q.outcomes()); diff != "" {
			t.Error(diff)
		}
		if q.renewals != 20 && q.renewals != 19 {
			t.Errorf("%d renewals in 60 s of a lease of 9 s, want 19 or 20", q.renewals)
		}
	})
}

func TestLostLeaseCancelsItem(t *testing.T) {
	tests := map[string]struct {
		why  string
		lose func(*queue)
		by   time.Duration
	}{
		"refused": {
			why:  "another worker may have claimed the item",
			lose: func(q *queue) { q.lose = true },
			by:   3 * time.Second,
		},
		"unavailable for longer than the lease": {
			why:  "the claim has expired",
			lose: func(q *queue) { q.away = errors.New("unavailable") },
			by:   12 * time.Second,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue("lost")
				var cause error
				var took time.Duration
				l := &work.Loop{Client: q, Queue: "q", Lease: 9 * time.Second, Do: func(ctx context.Context, _ tko.WorkItem) work.Result {
					started := time.Now()
					q.mu.Lock()
					test.lose(q)
					q.mu.Unlock()
					<-ctx.Done()
					cause, took = context.Cause(ctx), time.Since(started)
					q.setAway(nil)
					return work.Result{Err: ctx.Err()}
				}}
				run(t, l, func() { time.Sleep(time.Minute) })
				if !errors.Is(cause, work.ErrLost) {
					t.Errorf("cancelled because of %v, want ErrLost", cause)
				}
				if took > test.by {
					t.Errorf("cancelled after %v, want %v at most", took, test.by)
				}
				if len(q.finished) != 0 {
					t.Errorf("finished %v, want nothing after a lost claim", q.finished)
				}
			})
		})
	}
}

func TestStopReleasesUnfinishedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("quick", "endless", "stubborn")
		l := &work.Loop{Client: q, Queue: "q", Concurrency: 3, Grace: time.Second, Do: func(ctx context.Context, item tko.WorkItem) work.Result {
			switch item.Key {
			case "quick":
				time.Sleep(1500 * time.Millisecond) // ends within the grace
			case "endless":
				<-ctx.Done()
				return work.Result{Err: fmt.Errorf("interrupted: %w", ctx.Err())}
			case "stubborn":
				<-ctx.Done()
				time.Sleep(time.Second) // succeeds, though late
			}
			return work.Result{}
		}}
		started := time.Now()
		run(t, l, func() {
			time.Sleep(time.Second)
			q.add("next")
		})
		want := map[string]string{"quick": "done", "endless": "released", "stubborn": "done"}
		if diff := cmp.Diff(want, q.outcomes()); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(started); took > 4*time.Second {
			t.Errorf("the loop ended after %v, want 4s at most", took)
		}
	})
}

func TestItemsClaimedDuringStopAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("one", "two")
		q.slow = 100 * time.Millisecond
		l := &work.Loop{Client: q, Queue: "q", Do: func(context.Context, tko.WorkItem) work.Result {
			t.Error("an item was started after the stop")
			return work.Result{}
		}}
		run(t, l, func() { time.Sleep(50 * time.Millisecond) })
		if diff := cmp.Diff(map[string]string{"one": "released", "two": "released"}, q.outcomes()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWorkContinuesAfterDataControllerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("before")
		var log bytes.Buffer
		l := &work.Loop{
			Client: q, Queue: "q", Log: slog.New(slog.NewTextHandler(&log, nil)),
			Do: func(_ context.Context, item tko.WorkItem) work.Result {
				if item.Key == "before" {
					q.setAway(errors.New("connection refused"))
				}
				return work.Result{}
			},
		}
		run(t, l, func() {
			time.Sleep(10 * time.Minute)
			q.setAway(nil)
			q.add("after")
			time.Sleep(10 * time.Second)
		})
		if diff := cmp.Diff(map[string]string{"before": "done", "after": "done"}, q.outcomes()); diff != "" {
			t.Error(diff)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("the log has %d lines, want one that calls fail and one that they succeed again:\n%s", n, log.String())
		}
	})
}

func TestStopEndsWhileDataControllerIsUnavailable(t *testing.T) {
	for name, hang := range map[string]bool{"calls fail": false, "calls hang": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue("one")
				l := &work.Loop{Client: q, Queue: "q", Do: func(context.Context, tko.WorkItem) work.Result {
					q.hang = hang
					q.setAway(errors.New("connection refused"))
					return work.Result{}
				}}
				var stopped time.Time
				run(t, l, func() {
					time.Sleep(time.Minute)
					stopped = time.Now()
				})
				if took := time.Since(stopped); took > 6*time.Second {
					t.Errorf("stopping took %v, want 6s at most", took)
				}
			})
		})
	}
}

func TestRefusedQueueEndsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.away = tko.Errorf(tko.ErrInvalid, "there is no queue %q", "q")
		l := &work.Loop{Client: q, Queue: "q"}
		if err := l.Run(t.Context()); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("Run: %v", err)
		}
	})
}
