// Package changelog reads the changes of entities, for watchers and for events, and which records there were at them.
package changelog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/crowd"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A ChangeLog reads the changes of entities, and lists records as of its positions.
type ChangeLog struct {
	rights *rights.Authorizer
	store  record.Store

	changes     *changeCache
	watchers    crowd.Crowd                   // that wait for changes
	current     atomic.Int32                  // number of watches that have reached the newest change
	transitions *lru.Cache[int64, transition] // by position
}

// New returns the log of a store.
func New(authorizer *rights.Authorizer, store record.Store) *ChangeLog {
	return &ChangeLog{rights: authorizer, store: store, changes: &changeCache{feed: store}, transitions: lru.New[int64, transition](maxTransitions)}
}

// FeedLag returns the age of the oldest change that this server has not read for its
// watchers; 0 if it has read all, or if there is no watcher. Watchers that have not
// reached the newest change since they began are not considered. While the store doesn't
// respond, the lag isn't known, also without watchers: those that there were have ended.
func (s *ChangeLog) FeedLag(ctx context.Context) (time.Duration, error) {
	if s.current.Load() == 0 {
		_, err := s.store.Head(ctx)
		return 0, err
	}
	read, err := s.changes.position(ctx)
	if err != nil {
		return 0, err
	}
	missing, err := s.store.Changes(ctx, read, 1)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	return max(0, time.Since(missing[0].Time)), nil
}

// CheckPosition returns ErrGone if the log doesn't have all changes after a
// position.
func (s *ChangeLog) CheckPosition(ctx context.Context, position int64) error {
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	if position > head {
		return tko.Errorf(tko.ErrGone, "the position %d is beyond the newest change, which is %d: list again, and watch from there", position, head)
	}
	_, err = s.store.Changes(ctx, position, 1)
	return err
}

// Position returns the position of the newest change.
func (s *ChangeLog) Position(ctx context.Context) (int64, error) { return s.store.Head(ctx) }

// watchBatch is the number of changes that are read at once.
const watchBatch = 1000

// maxNewest limits how many of the newest changes a caller may begin with.
const maxNewest = 100_000

// BeforeNewest returns the position after which there are the newest n changes of all kinds, or all that are retained if they are fewer. n is at
// most 100,000.
func (s *ChangeLog) BeforeNewest(ctx context.Context, n int) (int64, error) {
	if n < 0 || n > maxNewest {
		return 0, tko.Errorf(tko.ErrInvalid, "the newest %d changes can't be asked for: use a number from 0 to %d", n, maxNewest)
	}
	return s.store.BeforeNewest(ctx, n)
}

// Watch streams the changes after a position, of the given kinds or of all, in
// their total order, and then new ones, until the context ends; the context's
// error comes last. A negative position is that of the newest change at the
// first iteration. A position whose changes are no longer retained is an
// ErrGone. So is a position beyond the newest change: it belongs to another
// database, or to this one before it was restored from a backup.
func (s *ChangeLog) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return record.Stream(func(yield func(tko.Change) bool) error { return s.watch(ctx, after, true, kinds, yield) })
}

// Changes streams the changes after a position as [ChangeLog.Watch] does, and ends at the
// newest one that there is at the first iteration.
func (s *ChangeLog) Changes(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return record.Stream(func(yield func(tko.Change) bool) error { return s.watch(ctx, after, false, kinds, yield) })
}

// watch returns nil when yield returns false, and, unless it follows new changes, at the
// newest one.
func (s *ChangeLog) watch(ctx context.Context, after int64, follow bool, kinds []tko.Kind, yield func(tko.Change) bool) error {
	for _, k := range kinds {
		if !slices.Contains(record.EntityKinds, k) {
			return tko.Errorf(tko.ErrInvalid, "there is no kind %.40q: use template, site, deployment or plugin", string(k))
		}
	}
	ctx, w, err := s.watcher(ctx, kinds)
	if err != nil {
		return err
	}
	head, err := s.store.Head(ctx)
	switch {
	case err != nil:
		return err
	case after > head:
		return tko.Errorf(tko.ErrGone, "the position %d is beyond the newest change, which is %d: list again, and watch from there", after, head)
	case after < 0:
		after = head
	}
	check, stop := w.Interval()
	defer stop()
	current := false
	defer func() {
		if current {
			s.current.Add(-1)
		}
	}()
	for follow || after < head {
		if err := w.Still(ctx); err != nil {
			return err
		}
		changes, wait, err := s.changes.after(ctx, after)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if !follow && c.Position > head {
				return nil
			}
			after = c.Position
			if len(kinds) > 0 && !slices.Contains(kinds, c.Kind) {
				continue
			}
			if c, err = s.seen(ctx, w, c); err != nil {
				return err
			}
			if c.Position == 0 {
				continue
			}
			if !yield(c) {
				return nil
			}
		}
		if len(changes) > 0 {
			continue
		}
		if !follow {
			return nil
		}
		if !current {
			current = true
			s.current.Add(1)
		}
		if err := s.await(ctx, w, wait, check); err != nil {
			return err
		}
	}
	return nil
}

// await waits for a signal among all watchers, and checks the rights of a watcher meanwhile.
func (s *ChangeLog) await(ctx context.Context, w *rights.Watcher, signal <-chan struct{}, check <-chan time.Time) error {
	waiter := s.watchers.Join(signal)
	defer waiter.Leave()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-waiter.Signal:
			return nil
		case <-waiter.Woken:
			return nil
		case <-check:
			if err := w.Still(ctx); err != nil {
				return err
			}
		}
	}
}

// watcher begins a watch of kinds, or of all, of which the caller must be able to read
// one.
func (s *ChangeLog) watcher(ctx context.Context, kinds []tko.Kind) (context.Context, *rights.Watcher, error) {
	if len(kinds) == 0 {
		kinds = record.EntityKinds
	}
	first := kinds[0]
	if c, err := s.rights.Caller(ctx); err == nil {
		for _, k := range kinds {
			if c.Grant.Somewhere(access.Read, k) {
				first = k
			}
		}
	}
	return s.rights.Reads(ctx, first)
}

// seen returns a change as the watcher sees it; Position 0 if it doesn't. An entity
// that leaves the scope of the watcher is deleted, one that enters it is written.
func (s *ChangeLog) seen(ctx context.Context, w *rights.Watcher, c tko.Change) (tko.Change, error) {
	scope := w.Caller().View().Of(c.Kind)
	switch {
	case scope.IsAll():
		return c, nil
	case scope.Empty():
		return tko.Change{}, nil
	}
	states, err := s.states(ctx, c)
	if err != nil {
		return tko.Change{}, err
	}
	matches := func(a *access.Attributes) bool { return a != nil && scope.Match(*a) }
	switch before, after := matches(states.before), matches(states.after); {
	case after || before && states.after == nil:
		return c, nil
	case before: // who moved it, and why, is outside the scope
		c.Op, c.Author = tko.OpDeleted, tko.Author{}
		return c, nil
	default:
		return tko.Change{}, nil
	}
}

// A transition is the properties of an entity before and after a change; nil if it
// didn't exist, or if its revision is no longer retained.
type transition struct{ before, after *access.Attributes }

// maxTransitions is the maximum number of cached transitions, by position, for all watchers
// that don't see everything.
const maxTransitions = 8192

// states returns the transition of a change.
func (s *ChangeLog) states(ctx context.Context, c tko.Change) (transition, error) {
	if known, ok := s.transitions.Get(c.Position); ok {
		return known, nil
	}
	key := record.Key{Kind: c.Kind, ID: c.ID}
	at := func(revision int64) (*access.Attributes, string, error) {
		if revision < 1 {
			return nil, "", nil
		}
		r, err := s.store.Revision(ctx, key, revision)
		if errors.Is(err, tko.ErrNotFound) {
			return nil, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		a := record.AttributesOf(r)
		return &a, r.UID, nil
	}
	is, uid, err := at(c.Revision)
	if err != nil {
		return transition{}, err
	}
	t := transition{before: is, after: is}
	switch c.Op {
	case tko.OpDeleted:
		t.after = nil
	case tko.OpWritten:
		before, beforeUID, err := at(c.Revision - 1)
		if err != nil {
			return transition{}, err
		}
		t.before = before
		if uid != beforeUID { // an earlier entity of the same ID
			t.before = nil
		}
	case tko.OpStatus:
	}
	s.transitions.Put(c.Position, t, 1)
	return t, nil
}

// watched has the changes of a log as subscriptions see them.
type watched struct{ log *ChangeLog }

// SeenBy shows the changes of a log as watchers of others see them.
func SeenBy(log *ChangeLog) watched { return watched{log} }

func (s watched) Seen(ctx context.Context, w *rights.Watcher, c tko.Change) (tko.Change, error) {
	return s.log.seen(ctx, w, c)
}

func (s watched) Before(ctx context.Context, c tko.Change) (*access.Attributes, error) {
	t, err := s.log.states(ctx, c)
	return t.before, err
}
