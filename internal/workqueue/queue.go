// Package workqueue hands out the work of controllers, and keeps what they save about targets.
package workqueue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of work.
const (
	maxClaim     = 10_000
	maxLease     = time.Hour
	maxWorkError = 4096
	minWorkWait  = 10 * time.Millisecond // between two queries of the store, even if clocks differ
)

// A WorkQueue hands out work to controllers, and keeps what they save for its targets.
type WorkQueue struct {
	rights   *rights.Authorizer // callers enter through it
	store    record.Store
	settings Settings

	idle map[string]*idleQueue // by queue
}

// Settings are how work is handed out.
type Settings struct {
	MinBackoff time.Duration // delay after the first failure of work
	MaxBackoff time.Duration // maximum delay after failures of work
	// Free returns those claimed items of a queue that may be begun now, and ends the claims of the
	// others. backoff is the delay of work that failed so many times.
	Free func(ctx context.Context, queue string, items []tko.WorkItem, backoff func(attempt int) time.Duration) ([]tko.WorkItem, error)
}

// New returns the work of a store.
func New(authorizer *rights.Authorizer, store record.Store, settings Settings) *WorkQueue {
	idle := map[string]*idleQueue{}
	for _, queue := range tko.Queues() {
		idle[queue] = &idleQueue{}
	}
	return &WorkQueue{rights: authorizer, store: store, settings: settings, idle: idle}
}

// ClaimWork returns up to Max items of work, which are the caller's for the
// duration of the lease. If there are none, it waits for the first one, up to
// Wait, and then returns none.
func (s *WorkQueue) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	if err := checkClaim(&claim); err != nil {
		return nil, err
	}
	ctx, _, err := s.rights.Enter(ctx, "", workVerb(claim.Queue))
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(claim.Wait)
	for waited := false; ; waited = true {
		signal := s.store.WorkSignal(claim.Queue)
		items, due, err := s.claim(ctx, claim, signal, waited)
		if err == nil {
			items, err = s.settings.Free(ctx, claim.Queue, items, s.backoff)
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), s.release(context.WithoutCancel(ctx), items))
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

// An idleQueue records that a waiting worker found nothing due in a queue
// before a time, as of a signal of the store. With it, not each of a thousand
// waiting workers queries the database at each change.
type idleQueue struct {
	lock   pause.Mutex
	signal <-chan struct{}
	due    time.Time // zero: unknown
}

// claim claims once. After waiting, a worker queries the store only if no other
// worker has since the signal was given. Waiting workers query one at a time.
func (s *WorkQueue) claim(ctx context.Context, claim tko.ClaimWork, signal <-chan struct{}, waited bool) ([]tko.WorkItem, time.Time, error) {
	// Don't cancel a claim in progress: if its response is lost, no worker can
	// claim the items until the lease expires.
	uncut := context.WithoutCancel(ctx)
	if !waited {
		return s.store.ClaimWork(uncut, claim)
	}
	l := s.idle[claim.Queue]
	unlock, err := l.lock.Lock(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unlock()
	if l.signal == signal && (l.due.IsZero() || time.Now().Before(l.due)) {
		return nil, l.due, nil
	}
	items, due, err := s.store.ClaimWork(uncut, claim)
	l.signal = nil
	if err == nil && len(items) == 0 {
		l.signal, l.due = signal, due
	}
	return items, due, err
}

// release ends the claims of items that no worker will process.
func (s *WorkQueue) release(ctx context.Context, items []tko.WorkItem) error {
	if len(items) == 0 {
		return nil
	}
	finished := make([]tko.FinishedWork, len(items))
	for i, item := range items {
		finished[i] = tko.FinishedWork{Item: item, Outcome: tko.WorkReleased}
	}
	return s.store.FinishWork(ctx, finished, s.backoff)
}

// waitFor waits for a signal, at most for a time.
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
	claim.Worker = printable.Kept(claim.Worker, 256)
	return checkLease(claim.Lease)
}

func checkQueue(queue string) error {
	if all := tko.Queues(); !slices.Contains(all, queue) {
		last := len(all) - 1
		return tko.Errorf(tko.ErrInvalid, "there is no queue %.40q: use %s or %s", queue, strings.Join(all[:last], ", "), all[last])
	}
	return nil
}

func checkLease(lease time.Duration) error {
	if lease <= 0 || lease > maxLease {
		return tko.Errorf(tko.ErrInvalid, "the lease is %s: use more than 0 and at most %s, and renew it", lease, maxLease)
	}
	return nil
}

// checkItemCount limits the number of items in one call: no claim has more.
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
	if !record.Storable(item.Key) || !record.Storable(item.Claim) {
		return tko.Errorf(tko.ErrInvalid, "the item %.40q of the queue %q is not plain text: give it as it was claimed", item.Key, item.Queue)
	}
	return nil
}

// RenewWork extends the leases that the caller still holds, and returns their
// items.
func (s *WorkQueue) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
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
	for _, item := range items {
		var err error
		if ctx, _, err = s.rights.Enter(ctx, "", workVerb(item.Queue)); err != nil {
			return nil, err
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	return s.store.RenewWork(ctx, items, lease)
}

// WorkClaim returns the claim of an item, and when its lease ends. It returns
// ErrNotFound if no worker has a lease on the item.
func (s *WorkQueue) WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error) {
	if err := checkItem(tko.WorkItem{Queue: queue, Key: key}); err != nil {
		return "", time.Time{}, err
	}
	return s.store.WorkClaim(ctx, queue, key)
}

// Queues returns the work that waits in each queue, and the items that fail, as far as the
// caller may read the entities that these are for.
func (s *WorkQueue) Queues(ctx context.Context) ([]tko.QueueState, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Inspect)
	if err != nil {
		return nil, err
	}
	states := make([]tko.QueueState, len(tko.Queues()))
	for i, queue := range tko.Queues() {
		if states[i].QueueStatistics, err = s.store.QueueStatistics(ctx, queue); err != nil {
			return nil, err
		}
		failing, err := s.store.FailingWork(ctx, queue, tko.MaxFailing)
		if err != nil {
			return nil, err
		}
		if states[i].Failing, err = s.readable(ctx, c, queue, failing); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// readable returns the items whose entities the caller may read. Work of deleted entities is
// only for callers who may read everything.
func (s *WorkQueue) readable(ctx context.Context, c *rights.Caller, queue string, items []tko.FailingWork) (seen []tko.FailingWork, err error) {
	if len(items) == 0 || c.View().IsAll() || workKind(queue) == "" {
		return items, nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, record.Keys(items, func(item tko.FailingWork) record.Key {
		if site, ok := tko.SiteOfWork(item.Key); ok && queue == tko.QueuePrepare {
			return record.Key{Kind: tko.KindSite, ID: string(site)}
		}
		return record.Key{Kind: workKind(queue), ID: item.Key}
	})...)
	if err != nil {
		return nil, err
	}
	for i, r := range records {
		if c.Sees(r) {
			seen = append(seen, items[i])
		}
	}
	return seen, nil
}

// workKind returns the kind of the entities that the keys of a queue name; "" if they name
// none, but what [access.Inspect] is for.
func workKind(queue string) tko.Kind {
	switch queue {
	case tko.QueuePrepare:
		return tko.KindDeployment
	case tko.QueueSchedule, tko.QueueCompare:
		return tko.KindSite
	case tko.QueueRollout:
		return tko.KindRollout
	}
	return ""
}

// FinishWork ends claims. It ignores those that the caller no longer holds.
func (s *WorkQueue) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	if err := checkItemCount(len(items)); err != nil {
		return err
	}
	finished := make([]tko.FinishedWork, len(items))
	for i, f := range items {
		if err := checkItem(f.Item); err != nil {
			return err
		}
		if _, _, err := s.rights.Enter(ctx, "", workVerb(f.Item.Queue)); err != nil {
			return err
		}
		switch f.Outcome {
		case tko.WorkDone, tko.WorkFailed, tko.WorkLater, tko.WorkReleased:
		default:
			return tko.Errorf(tko.ErrInvalid, "work on %q ended with %.40q: use done, failed, later or released", f.Item.Key, string(f.Outcome))
		}
		if f.Retry < 0 {
			return tko.Errorf(tko.ErrInvalid, "work on %q has the retry delay %s: use 0 or more", f.Item.Key, f.Retry)
		}
		if f.Gather && (f.Item.Queue != tko.QueueSchedule || f.Outcome != tko.WorkLater || f.Retry > tko.MaxGather) {
			return tko.Errorf(tko.ErrInvalid, "work on %q of the queue %q gathers for %s: only that of sites does, with the outcome later, for at most %s", f.Item.Key, f.Item.Queue, f.Retry, tko.MaxGather)
		}
		f.Error = printable.Kept(printable.Once(f.Error), maxWorkError)
		finished[i] = f
	}
	if len(finished) == 0 {
		return nil
	}
	return s.store.FinishWork(ctx, finished, s.backoff)
}

// backoff returns the delay of failed work. It doubles with each failure, with
// jitter, so that items that failed together are not due together.
func (s *WorkQueue) backoff(attempt int) time.Duration {
	d := s.settings.MinBackoff
	for range attempt - 1 {
		d *= 2
		if d >= s.settings.MaxBackoff {
			d = s.settings.MaxBackoff
			break
		}
	}
	return pause.Between(d-d/4, d)
}

// EnqueueEvents enqueues the work of posting Kubernetes Events, unless it is
// enqueued.
func (s *WorkQueue) EnqueueEvents(ctx context.Context) error {
	return s.store.EnqueueWork(ctx, tko.QueueEvents, []string{"recorder"}, true)
}

// maxSites is the maximum number of sites in one call.
const maxSites = 10_000

// EnqueueSites requests a reconciliation of sites, due at once, because of a
// change that was observed there. It changes nothing else.
func (s *WorkQueue) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	if len(ids) > maxSites {
		return tko.Errorf(tko.ErrInvalid, "%d sites are to be reconciled at once: give at most %d", len(ids), maxSites)
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		if key := (record.Key{Kind: tko.KindSite, ID: string(id)}); record.CheckKey(key) != nil {
			return record.Missing(key)
		}
		keys[i] = string(id)
	}
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Call)
	if err != nil {
		return err
	}
	if !c.Grant.On(access.Call, tko.KindSite).IsAll() {
		if err := s.permitCall(ctx, c, keys); err != nil {
			return err
		}
	}
	return s.store.EnqueueWork(ctx, tko.QueueSchedule, keys, false)
}

// permitCall checks that the caller may request a reconciliation of each site. A site
// that it may not read is reported as missing.
func (s *WorkQueue) permitCall(ctx context.Context, c *rights.Caller, ids []string) error {
	keys := record.Keys(ids, func(id string) record.Key { return record.Key{Kind: tko.KindSite, ID: id} })
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := s.rights.Visible(c, r); err != nil {
			return err
		}
		if err := s.rights.Permit(ctx, &r, nil, access.Call); err != nil {
			return err
		}
	}
	return nil
}

// workVerb returns the verb for the work of a queue.
func workVerb(queue string) access.Verb {
	switch queue {
	case tko.QueuePrepare:
		return access.Prepare
	case tko.QueueSchedule, tko.QueueCompare:
		return access.Schedule
	case tko.QueueGitOps:
		return access.Source
	case tko.QueueRollout:
		return access.Advance
	}
	return access.Events
}

// The bounds of the states of targets.
const (
	maxTargetName  = 253
	maxTargetState = 64 << 20
)

// TargetState returns the state that a target of the meta-scheduler saved for
// a site. If there is none, the error is an ErrNotFound.
func (s *WorkQueue) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	if err := checkTarget(site, name); err != nil {
		return tko.TargetState{}, err
	}
	ctx, _, err := s.rights.Enter(ctx, "", access.Schedule)
	if err != nil {
		return tko.TargetState{}, err
	}
	return s.store.TargetState(ctx, site, name)
}

// SaveTargetState writes the state of a target and returns its new version. The
// claim is that of the site's work, or of its comparison for [tko.ComparisonState]:
// ErrInvalid if it is of other work,
// ErrConflict if the caller no longer holds it. The site need not exist.
func (s *WorkQueue) SaveTargetState(ctx context.Context, state tko.TargetState, claim tko.WorkItem) (int64, error) {
	if err := errors.Join(checkTarget(state.Site, state.Name), checkItem(claim)); err != nil {
		return 0, err
	}
	ctx, _, err := s.rights.Enter(ctx, "", access.Schedule)
	if err != nil {
		return 0, err
	}
	queue, limit := tko.QueueSchedule, maxTargetState
	if state.Name == tko.ComparisonState {
		queue, limit = tko.QueueCompare, tko.MaxComparison
	}
	if claim.Queue != queue || claim.Key != string(state.Site) {
		return 0, tko.Errorf(tko.ErrInvalid, "the state of target %q of site %q is saved with a claim of %.40s %.40q: claim the work of the site",
			state.Name, state.Site, claim.Queue, claim.Key)
	}
	if len(state.State) > limit {
		return 0, tko.Errorf(tko.ErrInvalid, "the state of target %q of site %q has %d bytes: use at most %d", state.Name, state.Site, len(state.State), limit)
	}
	return s.store.SaveTargetState(ctx, state, claim)
}

func checkTarget(site tko.SiteID, name string) error {
	if err := tko.CheckID("the site of a target", string(site)); err != nil {
		return err
	}
	if name == "" || len(name) > maxTargetName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f }) || !record.Storable(name) {
		return tko.Errorf(tko.ErrInvalid, "target %.40q of site %q: use a name of 1 to %d visible characters", name, site, maxTargetName)
	}
	return nil
}
