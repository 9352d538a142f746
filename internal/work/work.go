package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Client is what the loop needs of the data controller.
type Client interface {
	// ClaimWork answers up to Max items, and waits for the first of them for at
	// most Wait. No items is no error.
	ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error)
	// RenewWork extends the leases that still are the caller's, and answers
	// those items.
	RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error)
	// FinishWork ends claims. Those that no longer are the caller's are passed
	// over.
	FinishWork(ctx context.Context, items []tko.FinishedWork) error
}

// Why the context of an item is cancelled: see [context.Cause].
var (
	// ErrLost says that the lease ran out, so that somebody else may be at the
	// item by now.
	ErrLost = errors.New("the claim of the work was lost")
	// ErrStopped says that the loop stops.
	ErrStopped = errors.New("stopping")
)

// A Result is how a look at an item ended.
type Result struct {
	Outcome tko.WorkOutcome // if "": done, or failed if Err is there
	Err     error           // why it failed
	Retry   time.Duration   // of WorkLater; of WorkFailed in place of the back-off, if not 0
}

// A Loop does the work of one queue. Client, Queue and Do are required.
type Loop struct {
	Client      Client
	Queue       string
	Worker      string        // who claims, for people who read along
	Concurrency int           // items at the same time; 8 if 0
	Lease       time.Duration // how long a claim is good without being renewed; 30 s if 0
	Wait        time.Duration // how long a claim waits for work; 20 s if 0
	Grace       time.Duration // how long running items may go on when the loop stops; 5 s if 0
	Log         *slog.Logger  // nowhere if nil

	// Do looks at an item. It is called by several goroutines at the same time.
	// The context is cancelled when the item's lease is lost ([ErrLost]) and
	// when the loop has been stopped and the grace is over ([ErrStopped]). A
	// panic is a failed item.
	Do func(ctx context.Context, item tko.WorkItem) Result
}

const (
	groupDelay = 2 * time.Millisecond // results that come in within it are finished by one call
	maxFinish  = 500                  // results in one call
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	callLimit  = 15 * time.Second       // of one call, beyond what it was asked to wait
	claimDrain = 200 * time.Millisecond // how long a claim under way may go on when the loop stops
)

// Run works until the context ends, and answers nil then: what was running has
// been finished or given back. While the data controller is away, it keeps
// trying. An error other than nil says that the data controller refuses the
// queue altogether.
func (l *Loop) Run(ctx context.Context) error {
	r := newRun(l)
	return r.run(ctx)
}

// A run is one call of Run.
type run struct {
	Loop
	slots    chan struct{} // an element per item that may be begun
	finished chan tko.FinishedWork
	away     awayLog

	mu   sync.Mutex
	held map[claim]*holding
}

// A claim tells the claims of this run apart.
type claim struct{ key, claim string }

// A holding is an item whose claim is ours.
type holding struct {
	item   tko.WorkItem
	until  time.Time // when the lease runs out
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
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	r.away.log = r.Log.With("queue", r.Queue)
	r.slots = make(chan struct{}, r.Concurrency)
	for range r.Concurrency {
		r.slots <- struct{}{}
	}
	r.finished = make(chan tko.FinishedWork, 4*r.Concurrency)
	return r
}

func (r *run) run(ctx context.Context) error {
	// Items, renewals and results outlive the stop: they have a context of
	// their own.
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
		// Held before anything else happens, so that it is renewed from now on.
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

// claim claims and begins items until the context ends.
func (r *run) claim(ctx context.Context, begin func(tko.WorkItem)) error {
	// A claim that is cut off may have been granted: its items would be nobody's
	// until the lease runs out. So one that is under way may end.
	claiming, stopClaiming := context.WithCancel(context.WithoutCancel(ctx))
	defer stopClaiming()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(claimDrain, stopClaiming) })()
	var backoff time.Duration
	full := false // the last claim left work behind, as far as we know
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
			return nil // a claim that the stop interrupts is no failure
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
			sleep(ctx, backoff)
			continue
		case len(items) == 0 && time.Since(started) < groupDelay:
			// A server that doesn't wait must not make us spin.
			sleep(ctx, minBackoff)
		}
		backoff = 0
		r.away.back(started)
	}
}

func (r *run) claimOnce(ctx context.Context, n int) ([]tko.WorkItem, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+callLimit)
	defer cancel()
	return r.Client.ClaimWork(ctx, tko.ClaimWork{Queue: r.Queue, Worker: r.Worker, Max: n, Lease: r.Lease, Wait: r.Wait})
}

// acquire takes at least one slot, and all that are free; none if the context
// ends. When there is more work than slots it waits a moment for more of them,
// so that claims stay fewer than items.
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
		sleep(ctx, groupDelay)
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

// do looks at an item and hands on how that ended.
func (r *run) do(ctx context.Context, h *holding) {
	defer func() { r.slots <- struct{}{} }()
	result := r.call(ctx, h.item)
	cause := context.Cause(ctx)
	h.cancel(nil)
	if errors.Is(cause, ErrLost) {
		r.drop(h.item)
		r.Log.WarnContext(ctx, "lost the claim of work while it was being done", "queue", r.Queue, "key", h.item.Key)
		return
	}
	done := tko.FinishedWork{Item: h.item, Outcome: result.Outcome, Retry: result.Retry}
	if done.Outcome == "" {
		done.Outcome = tko.WorkDone
		if result.Err != nil {
			done.Outcome = tko.WorkFailed
		}
	}
	if cause != nil && result.Err != nil {
		// It failed because it was interrupted: that is no failure.
		done.Outcome = tko.WorkReleased
	}
	if done.Outcome == tko.WorkFailed && result.Err != nil {
		done.Error = result.Err.Error()
	}
	r.finished <- done
}

func (r *run) call(ctx context.Context, item tko.WorkItem) (result Result) {
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

// renew keeps the leases, from the claim until the result has been taken.
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
		case h == nil: // finished meanwhile
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

// finish reports results, in groups, until there are no more.
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

// report tries until the results are taken or refused, or the context ends.
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
			r.Log.WarnContext(ctx, "gave up on reporting results: the work comes back when its lease runs out", "queue", r.Queue, "items", len(group), "err", err)
			return
		}
		r.away.failed("finish", err)
		backoff = nextBackoff(backoff)
		sleep(ctx, backoff)
	}
}

func (r *run) finishOnce(ctx context.Context, group []tko.FinishedWork) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return r.Client.FinishWork(ctx, group)
}

// An awayLog tells once that the data controller is away, and once that it is
// back.
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
		a.log.Warn("the data controller does not take our calls: trying on", "call", what, "err", err)
	}
}

// back says that a call worked that was begun at a time.
func (a *awayLog) back(begun time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away && begun.After(a.since) {
		a.away = false
		a.log.Info("the data controller takes our calls again")
	}
}

// nextBackoff doubles, with jitter, between the bounds.
func nextBackoff(last time.Duration) time.Duration {
	next := min(max(2*last, minBackoff), maxBackoff)
	return next - time.Duration(rand.Int64N(int64(next)/4)) //nolint:gosec // jitter is no secret
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
