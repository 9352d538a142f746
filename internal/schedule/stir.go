package schedule

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// stirred is how many sites that targets want to be looked at, beside the work
// of the queue, are looked at at once.
const stirred = 8

// stirs are sites that a target noticed something about. They are looked at by
// whoever noticed, and not by way of the queue: the site's item there stays due
// when it is. Nobody else in this process is at the site meanwhile, and other
// processes are kept from it as they are when a lease runs out: by what the
// target records. The zero value works.
type stirs struct {
	mu      sync.Mutex
	waiting []tko.SiteID
	wake    chan struct{}
	within  map[tko.SiteID]chan struct{} // closed when whoever is at the site leaves
	later   map[tko.SiteID]*time.Timer
}

// add wants a site to be looked at.
func (s *stirs) add(id tko.SiteID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.waiting, id) {
		return
	}
	s.waiting = append(s.waiting, id)
	select {
	case s.signal() <- struct{}{}:
	default:
	}
}

// signal answers the channel that tells of waiting sites; s.mu is held.
func (s *stirs) signal() chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{}, stirred)
	}
	return s.wake
}

func (s *stirs) next() (id tko.SiteID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return "", false
	}
	id, s.waiting = s.waiting[0], s.waiting[1:]
	return id, true
}

// enter waits until nobody is at a site, and is there until leave is called.
func (s *stirs) enter(id tko.SiteID) (leave func()) {
	for {
		s.mu.Lock()
		if s.within == nil {
			s.within, s.later = map[tko.SiteID]chan struct{}{}, map[tko.SiteID]*time.Timer{}
		}
		other := s.within[id]
		if other == nil {
			mine := make(chan struct{})
			s.within[id] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.within, id)
				close(mine)
			}
		}
		s.mu.Unlock()
		<-other
	}
}

// run looks at sites until the context ends.
func (s *stirs) run(ctx context.Context, by *Scheduler) {
	s.mu.Lock()
	wake := s.signal()
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for id, ok := s.next(); ok && ctx.Err() == nil; id, ok = s.next() {
			s.look(ctx, by, id)
		}
	}
}

// look looks at a site, and again if what it found there wants that soon.
func (s *stirs) look(ctx context.Context, by *Scheduler, id tko.SiteID) {
	defer s.enter(id)()
	by.options.Log.DebugContext(ctx, "looking at a site where something happened", "site", string(id))
	result := by.Look(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.later[id]; t != nil {
		t.Stop()
		delete(s.later, id)
	}
	const soon = time.Minute // what is later than that is the queue's
	if result.Retry > 0 && result.Retry < soon && ctx.Err() == nil {
		s.later[id] = time.AfterFunc(result.Retry, func() {
			s.mu.Lock()
			delete(s.later, id)
			s.mu.Unlock()
			if ctx.Err() == nil {
				s.add(id)
			}
		})
	}
}
