package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// Client has the methods of the data controller that the loop calls.
type Client interface {
	// ClaimWork returns up to Max items. It waits up to Wait for the first of them,
	// and returns no error if there is none.
	ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error)
	// RenewWork extends the leases that the caller still holds, and returns those
	// items.
	RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error)
	// FinishWork ends claims. It ignores those that the caller no longer holds.
	FinishWork(ctx context.Context, items []tko.FinishedWork) error
}

// The causes for which the context of an item is cancelled: see [context.Cause].
var (
	// ErrLost means that the lease has expired, so that another worker may have
	// claimed the item.
	ErrLost = errors.New("the claim of the work was lost")
	// ErrStopped means that the loop stops.
	ErrStopped = errors.New("stopping")
)

// A Result is the result of one reconciliation of an item.
type Result struct {
	Outcome tko.WorkOutcome // if "": failed if Err is not nil, else done
	Err     error           // why it failed
	Retry   time.Duration   // of WorkLater and WorkReleased; of WorkFailed it replaces the back-off, if not 0
	Gather  bool            // of WorkLater: see [tko.FinishedWork]
}

// An Observer counts work, for metrics.
type Observer interface {
	// Worked is called when a reconciliation has ended; again means that the item
	// had failed before.
	Worked(queue, result string, again bool, took time.Duration)
	// Lost is called when the lease of an item was lost.
	Lost(queue string)
}

// A Loop does the work of one queue. Client, Queue and Do are required.
type Loop struct {
	Client      Client
	Queue       string
	Worker      string        // name of the worker, for logs and diagnostics
	Concurrency int           // items at the same time; 8 if 0
	Lease       time.Duration // how long a claim is valid without a renewal; 30 s if 0
	Wait        time.Duration // how long a claim waits for work; 20 s if 0
	Grace       time.Duration // how long running items may continue when the loop stops; 5 s if 0
	Log         *slog.Logger  // discarded if nil
	Observer    Observer      // none if nil

	// Do reconciles an item. It must be safe for concurrent use. The context is
	// cancelled when the item's lease is lost ([ErrLost]), and when the loop has
	// been stopped and the grace is over ([ErrStopped]). If Do panics, the item
	// fails.
	Do func(ctx context.Context, item tko.WorkItem) Result
}

const (
	groupDelay = 2 * time.Millisecond // results within this time are finished by one call
	maxFinish  = 500                  // results in one call
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	callLimit  = 15 * time.Second       // of one call, in addition to the requested wait
	claimDrain = 200 * time.Millisecond // how long a running claim may continue when the loop stops
)

// Run works until the context ends, and then returns nil: all items have been
// finished or released. While the data controller is unavailable, it retries. It
// returns an error if the data controller refuses the queue.
func (l *Loop) Run(ctx context.Context) error {
	r := newRun(l)
	return r.run(ctx)
}

// A run is one call of Run.
type run struct {
	Loop
	slots    chan struct{} // an element per item that may be started
	finished chan tko.FinishedWork
	away     awayLog

	mu   sync.Mutex
	held map[claim]*holding
}

// A claim identifies a claim of this run.
type claim struct{ key, claim string }

// A holding is an item that this run has claimed.
type holding struct {
	item   tko.WorkItem
	until  time.Time // when the lease expires
	cancel context.CancelCauseFunc
}

func newRun(l *Loop) *run {
	r := &run{Loop: *l, held: map[claim]*holding{}}
	if r.Concurrency <= 0 {
		r.Concurrency = 8
	}
	if r.Lease <= 0 {
		r.Lease = 30 * time.Second
	}
	if r.Wait <= 0 {
		r.Wait = 20 * time.Second
	}
	if r.Grace <= 0 {
		r.Grace = 5 * time.Second
	}
	r.Log = cmp.Or(r.Log, slog.New(slog.DiscardHandler))
	r.away.log = r.Log.With("queue", r.Queue)
	r.slots = make(chan struct{}, r.Concurrency)
	for range r.Concurrency {
		r.slots <- struct{}{}
	}
	r.finished = make(chan tko.FinishedWork, 4*r.Concurrency)
	return r
}

func (r *run) run(ctx context.Context) error {
	// Items, renewals and results continue after the stop: they have their own
	// contexts.
	working, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	finishing, stopFinishing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking(nil)
	defer stopRenewing()
	defer stopFinishing()

	var items, keepers sync.WaitGroup
	keepers.Go(func() { r.renew(renewing) })
	keepers.Go(func() { r.finish(finishing) })

	err := r.claim(ctx, func(item tko.WorkItem) {
		// Held at once, so that its lease is renewed from now on.
		itemCtx, h := r.hold(working, item)
		items.Go(func() { r.do(itemCtx, h) })
	})

	grace := time.AfterFunc(r.Grace, func() { stopWorking(ErrStopped) })
	items.Wait()
	grace.Stop()
	close(r.finished)
	stopRenewing()
	grace = time.AfterFunc(r.Grace, stopFinishing)
	keepers.Wait()
	grace.Stop()
	return err
}

// claim claims and starts items until the context ends.
func (r *run) claim(ctx context.Context, begin func(tko.WorkItem)) error {
	// A cancelled call may have claimed items, which no worker would process until
	// the leases expire. So a call under way may continue for claimDrain.
	claiming, stopClaiming := context.WithCancel(context.WithoutCancel(ctx))
	defer stopClaiming()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(claimDrain, stopClaiming) })()
	var backoff time.Duration
	full := false // the last claim returned as many items as it asked for
	for {
		n := r.acquire(ctx, full)
		if n == 0 {
			return nil
		}
		started := time.Now()
		items, err := r.claimOnce(claiming, n)
		if ctx.Err() != nil {
			for _, item := range items {
				r.finished <- tko.FinishedWork{Item: item, Outcome: tko.WorkReleased}
			}
			return nil // a claim that the stop interrupts has not failed
		}
		for range n - len(items) {
			r.slots <- struct{}{}
		}
		for _, item := range items[:min(n, len(items))] {
			begin(item)
		}
		full = len(items) == n
		switch {
		case errors.Is(err, tko.ErrInvalid):
			return fmt.Errorf("claim work of queue %q: %w", r.Queue, err)
		case err != nil:
			r.away.failed("claim", err)
			backoff = nextBackoff(backoff)
			_ = pause.For(ctx, backoff)
			continue
		case len(items) == 0 && time.Since(started) < groupDelay:
			// Don't spin if a server doesn't wait.
			_ = pause.For(ctx, minBackoff)
		}
		backoff = 0
		r.away.recovered(started)
	}
}

func (r *run) claimOnce(ctx context.Context, n int) ([]tko.WorkItem, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+callLimit)
	defer cancel()
	return r.Client.ClaimWork(ctx, tko.ClaimWork{Queue: r.Queue, Worker: r.Worker, Max: n, Lease: r.Lease, Wait: r.Wait})
}

// acquire takes all free slots, and waits for at least one; it takes none if the
// context ends. If there is more work than slots, it waits groupDelay for more of
// them, so that one call claims several items.
func (r *run) acquire(ctx context.Context, full bool) int {
	select {
	case <-ctx.Done():
		return 0
	case <-r.slots:
	}
	if ctx.Err() != nil {
		r.slots <- struct{}{}
		return 0
	}
	n := 1 + r.free()
	if full && n <= r.Concurrency/2 {
		_ = pause.For(ctx, groupDelay)
		n += r.free()
	}
	return n
}

func (r *run) free() int {
	for n := 0; ; n++ {
		select {
		case <-r.slots:
		default:
			return n
		}
	}
}

func (r *run) hold(working context.Context, item tko.WorkItem) (context.Context, *holding) {
	ctx, cancel := context.WithCancelCause(working)
	h := &holding{item: item, until: time.Now().Add(r.Lease), cancel: cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[claim{item.Key, item.Claim}] = h
	return ctx, h
}

// do processes an item and sends its result to be reported.
func (r *run) do(ctx context.Context, h *holding) {
	defer func() { r.slots <- struct{}{} }()
	began := time.Now()
	result := r.call(ctx, h.item)
	cause := context.Cause(ctx)
	h.cancel(nil)
	if errors.Is(cause, ErrLost) {
		if r.Observer != nil {
			r.Observer.Lost(r.Queue)
		}
		r.drop(h.item)
		r.Log.WarnContext(ctx, "lost the claim of work while it was being done", "queue", r.Queue, "key", h.item.Key)
		return
	}
	done := tko.FinishedWork{Item: h.item, Outcome: result.Outcome, Retry: result.Retry, Gather: result.Gather && result.Outcome == tko.WorkLater}
	if done.Outcome == "" {
		done.Outcome = tko.WorkDone
		if result.Err != nil {
			done.Outcome = tko.WorkFailed
		}
	}
	if cause != nil && result.Err != nil {
		// It returned an error because it was interrupted: it has not failed.
		done.Outcome, done.Retry, done.Gather = tko.WorkReleased, 0, false
	}
	if done.Outcome == tko.WorkFailed && result.Err != nil {
		done.Error = result.Err.Error()
	}
	if r.Observer != nil {
		r.Observer.Worked(r.Queue, string(done.Outcome), h.item.Attempt > 0, time.Since(began))
	}
	r.finished <- done
}

func (r *run) call(ctx context.Context, item tko.WorkItem) (result Result) {
	ctx, span := trail.Resume(ctx, item.Queue+".reconcile", item.Cause)
	if span.IsRecording() {
		span.SetAttributes(trail.ID.String(item.Key))
	}
	defer func() {
		if span.IsRecording() {
			span.SetAttributes(trail.Outcome.String(string(result.Outcome)))
		}
		trail.End(span, result.Err)
	}()
	defer func() {
		if p := recover(); p != nil {
			r.Log.ErrorContext(ctx, "work panicked", "queue", r.Queue, "key", item.Key, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Outcome: tko.WorkFailed, Err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return r.Do(ctx, item)
}

func (r *run) drop(item tko.WorkItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, claim{item.Key, item.Claim})
}

// renew renews the leases, from the claim until the result has been reported.
func (r *run) renew(ctx context.Context) {
	tick := time.NewTicker(r.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.renewOnce(ctx)
		}
	}
}

func (r *run) renewOnce(ctx context.Context) {
	items := r.holdings()
	if len(items) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.Lease/3)
	defer cancel()
	asked := time.Now()
	renewed, err := r.Client.RenewWork(ctx, items, r.Lease)
	ours := make(map[claim]bool, len(renewed))
	for _, item := range renewed {
		ours[claim{item.Key, item.Claim}] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range items {
		c := claim{item.Key, item.Claim}
		h := r.held[c]
		switch {
		case h == nil: // it was finished in the meantime
		case err == nil && ours[c]:
			h.until = asked.Add(r.Lease)
		case err == nil || !time.Now().Before(h.until):
			h.cancel(ErrLost)
		}
	}
}

func (r *run) holdings() []tko.WorkItem {
	r.mu.Lock()
	defer r.mu.Unlock()
	items := make([]tko.WorkItem, 0, len(r.held))
	for _, h := range r.held {
		items = append(items, h.item)
	}
	return items
}

// finish reports results in groups until the channel is closed.
func (r *run) finish(ctx context.Context) {
	for first := range r.finished {
		group := r.group(first)
		r.report(ctx, group)
		for _, f := range group {
			r.drop(f.Item)
		}
	}
}

func (r *run) group(first tko.FinishedWork) []tko.FinishedWork {
	group := []tko.FinishedWork{first}
	timer := time.NewTimer(groupDelay)
	defer timer.Stop()
	for len(group) < maxFinish {
		select {
		case f, ok := <-r.finished:
			if !ok {
				return group
			}
			group = append(group, f)
		case <-timer.C:
			return group
		}
	}
	return group
}

// report retries until the results are accepted or refused, or the context ends.
func (r *run) report(ctx context.Context, group []tko.FinishedWork) {
	var backoff time.Duration
	for {
		err := r.finishOnce(ctx, group)
		switch {
		case err == nil:
			return
		case errors.Is(err, tko.ErrInvalid):
			r.Log.ErrorContext(ctx, "results of work were refused", "queue", r.Queue, "items", len(group), "err", err)
			return
		case ctx.Err() != nil:
			r.Log.WarnContext(ctx, "gave up on reporting results: the work is due again when its lease expires", "queue", r.Queue, "items", len(group), "err", err)
			return
		}
		r.away.failed("finish", err)
		backoff = nextBackoff(backoff)
		_ = pause.For(ctx, backoff)
	}
}

func (r *run) finishOnce(ctx context.Context, group []tko.FinishedWork) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return r.Client.FinishWork(ctx, group)
}

// An awayLog logs once that the data controller is unavailable, and once that it is
// available again.
type awayLog struct {
	log   *slog.Logger
	mu    sync.Mutex
	away  bool
	since time.Time // of the newest failure
}

func (a *awayLog) failed(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Now()
	if !a.away {
		a.away = true
		a.log.Warn("calls to the data controller fail: retrying", "call", what, "err", err)
	}
}

// recovered records that a call that began at begun succeeded.
func (a *awayLog) recovered(begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away && begun.After(a.since) {
		a.away = false
		a.log.Info("calls to the data controller succeed again")
	}
}

// nextBackoff returns twice the last back-off, within the bounds and with jitter.
func nextBackoff(last time.Duration) time.Duration {
	next := min(max(2*last, minBackoff), maxBackoff)
	return pause.Between(next-next/4, next)
}
