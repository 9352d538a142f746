package catalog

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The bounds of work.
const (
	maxClaim     = 10_000
	maxLease     = time.Hour
	maxWorkError = 4096
	minWorkWait  = 10 * time.Millisecond // between two looks, whatever clocks say
)

// ClaimWork answers up to Max items of work that are now the caller's for the
// time of the lease. When there are none, it waits for the first, up to Wait,
// and then answers none.
func (s *Service) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	if err := checkClaim(&claim); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(claim.Wait)
	for waited := false; ; waited = true {
		signal := s.store.Signal()
		items, due, err := s.claim(ctx, claim, signal, waited)
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), s.giveBack(context.WithoutCancel(ctx), items))
		}
		if err != nil || len(items) > 0 {
			return items, err
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			return nil, nil
		}
		if !due.IsZero() {
			wait = min(wait, max(time.Until(due), minWorkWait))
		}
		if err := waitFor(ctx, signal, wait); err != nil {
			return nil, err
		}
	}
}

// A lull is what was found of a queue by one that waits for work: nothing is due
// before a time, as long as a signal of the store is not given. Without, each of
// a thousand that wait would ask the database at every change.
type lull struct {
	lock   lock
	signal <-chan struct{}
	due    time.Time // zero: not known
}

// claim claims once. One that has waited asks the store only if no other has
// since the signal was given: they take turns.
func (s *Service) claim(ctx context.Context, claim tko.ClaimWork, signal <-chan struct{}, waited bool) ([]tko.WorkItem, time.Time, error) {
	// Not cut off half way: a claim whose response is lost would keep its
	// items from all workers until the lease runs out.
	uncut := context.WithoutCancel(ctx)
	if !waited {
		return s.store.ClaimWork(uncut, claim)
	}
	l := s.lulls[claim.Queue]
	unlock, err := l.lock.lock(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unlock()
	if l.signal == signal && (l.due.IsZero() || time.Now().Before(l.due)) {
		return nil, l.due, nil
	}
	items, due, err := s.store.ClaimWork(uncut, claim)
	if l.signal = nil; err == nil && len(items) == 0 {
		l.signal, l.due = signal, due
	}
	return items, due, err
}

// giveBack ends the claims of items that nobody will work on.
func (s *Service) giveBack(ctx context.Context, items []tko.WorkItem) error {
	if len(items) == 0 {
		return nil
	}
	finished := make([]tko.FinishedWork, len(items))
	for i, item := range items {
		finished[i] = tko.FinishedWork{Item: item, Outcome: tko.WorkReleased}
	}
	return s.store.FinishWork(ctx, finished, s.backoff)
}

// waitFor waits for a signal or for the time to pass.
func waitFor(ctx context.Context, signal <-chan struct{}, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-signal:
	case <-timer.C:
	}
	return nil
}

func checkClaim(claim *tko.ClaimWork) error {
	if err := checkQueue(claim.Queue); err != nil {
		return err
	}
	if claim.Max <= 0 {
		return tko.Errorf(tko.ErrInvalid, "queue %q: %d items of work were asked for: ask for at least one", claim.Queue, claim.Max)
	}
	claim.Max = min(claim.Max, maxClaim)
	claim.Worker = plainText(claim.Worker, 256)
	return checkLease(claim.Lease)
}

func checkQueue(queue string) error {
	if queue != tko.QueuePrepare && queue != tko.QueueSchedule && queue != tko.QueueGitOps && queue != tko.QueueEvents {
		return tko.Errorf(tko.ErrInvalid, "there is no queue %.40q: use %s, %s, %s or %s", queue, tko.QueuePrepare, tko.QueueSchedule, tko.QueueGitOps, tko.QueueEvents)
	}
	return nil
}

func checkLease(lease time.Duration) error {
	if lease <= 0 || lease > maxLease {
		return tko.Errorf(tko.ErrInvalid, "the lease is %s: use more than nothing and at most %s, and renew it", lease, maxLease)
	}
	return nil
}

// checkItemCount bounds how many items one call is about: no claim has more.
func checkItemCount(n int) error {
	if n > maxClaim {
		return tko.Errorf(tko.ErrInvalid, "there are %d items of work: give at most %d at a time", n, maxClaim)
	}
	return nil
}

func checkItem(item tko.WorkItem) error {
	if err := checkQueue(item.Queue); err != nil {
		return err
	}
	if !storable(item.Key) || !storable(item.Claim) {
		return tko.Errorf(tko.ErrInvalid, "the item %.40q of the queue %q is not plain text: give it as it was claimed", item.Key, item.Queue)
	}
	return nil
}

// RenewWork extends the leases that still are the caller's, and answers those
// items.
func (s *Service) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	if err := checkLease(lease); err != nil {
		return nil, err
	}
	if err := checkItemCount(len(items)); err != nil {
		return nil, err
	}
	for _, item := range items {
		if err := checkItem(item); err != nil {
			return nil, err
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	return s.store.RenewWork(ctx, items, lease)
}

// FinishWork ends claims; those that are no longer the caller's are passed
// over.
func (s *Service) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	if err := checkItemCount(len(items)); err != nil {
		return err
	}
	finished := make([]tko.FinishedWork, len(items))
	for i, f := range items {
		if err := checkItem(f.Item); err != nil {
			return err
		}
		switch f.Outcome {
		case tko.WorkDone, tko.WorkFailed, tko.WorkLater, tko.WorkReleased:
		default:
			return tko.Errorf(tko.ErrInvalid, "work on %q ended with %.40q: use done, failed, later or released", f.Item.Key, string(f.Outcome))
		}
		if f.Retry < 0 {
			return tko.Errorf(tko.ErrInvalid, "work on %q shall come back after %s: the time can't be negative", f.Item.Key, f.Retry)
		}
		f.Error = plainText(f.Error, maxWorkError)
		finished[i] = f
	}
	if len(finished) == 0 {
		return nil
	}
	return s.store.FinishWork(ctx, finished, s.backoff)
}

// backoff is how long failed work waits: twice as long with every failure,
// with jitter, so that what failed together doesn't come back together.
func (s *Service) backoff(attempt int) time.Duration {
	d := s.options.MinBackoff
	for range attempt - 1 {
		if d *= 2; d >= s.options.MaxBackoff {
			d = s.options.MaxBackoff
			break
		}
	}
	return d - rand.N(d/4+1) //nolint:gosec // spreads load, hides nothing
}

// EnqueueEvents calls for a recorder of Kubernetes Events, unless one is called for
// already.
func (s *Service) EnqueueEvents(ctx context.Context) error {
	return s.store.EnqueueWork(ctx, tko.QueueEvents, []string{"recorder"}, true)
}

// maxSites is how many sites are called at once, at most.
const maxSites = 10_000

// EnqueueSites calls for a look at sites, due at once, because of what was
// noticed there. It changes nothing else.
func (s *Service) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	if len(ids) > maxSites {
		return tko.Errorf(tko.ErrInvalid, "a look at %d sites is called for at once: call for at most %d", len(ids), maxSites)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		if key := (Key{Kind: tko.KindSite, ID: string(id)}); CheckKey(key) != nil {
			return missing(key)
		}
		keys[i] = string(id)
	}
	return s.store.EnqueueWork(ctx, tko.QueueSchedule, keys, false)
}
