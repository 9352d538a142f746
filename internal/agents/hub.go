package agents

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	// pollRules is the time between two readings of the version of the rules: of enrollments,
	// stops and freezes.
	pollRules = time.Second
	// pollHolds is the time between two readings of what is held after a restore. A store is
	// restored while no server uses it, so these only become fewer.
	pollHolds = 10 * time.Second
	// retryChanges is the time until changes are followed again after a failure.
	retryChanges = time.Second
	// noted is the number of changes that are remembered for agents that begin to follow.
	noted = 1024
)

// A seat is the place of a connected agent.
type seat struct {
	enrollment tko.AgentEnrollment
	epoch      int64         // the fencing epoch that the agent gets
	wake       chan struct{} // has an element if what the site shall have may have changed
	ended      chan error    // why the connection must end
	follows    []tko.DeploymentID
}

func (s *seat) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *seat) end(why error) {
	select {
	case s.ended <- why:
	default:
	}
}

// A hub has the seats of all connected agents, one for each site, and what concerns them.
type hub struct {
	mutex   sync.Mutex
	seats   map[tko.SiteID]*seat
	members map[tko.DeploymentID]*seat // the agents that have a deployment, or shall have it
	recent  [noted]tko.DeploymentID    // that have changed lately; number n is at n modulo its size
	changes uint64                     // number of changes of deployments
	held    map[tko.SiteID]string      // modes of holds after a restore
	heldAll string                     // mode of all sites, or ""
	known   bool                       // held was read
	seen    map[tko.SiteID]struct{}    // whose agents have connected since this server started
}

func newHub() *hub {
	return &hub{seats: map[tko.SiteID]*seat{}, members: map[tko.DeploymentID]*seat{}, seen: map[tko.SiteID]struct{}{}}
}

// join gives an agent its seat. Another connection of the same site ends: the new one is of the
// same agent, which lost it, or the catalog has replaced that agent. again is true if an agent of
// the site has connected before.
func (h *hub) join(e tko.AgentEnrollment, epoch int64) (s *seat, again bool) {
	s = &seat{enrollment: e, epoch: epoch, wake: make(chan struct{}, 1), ended: make(chan error, 1)}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if old := h.seats[e.Site]; old != nil {
		old.end(tko.Errorf(tko.ErrConflict, "another connection of the agent has replaced this one: run one tko-agent for a site"))
	}
	h.seats[e.Site] = s
	_, again = h.seen[e.Site]
	h.seen[e.Site] = struct{}{}
	return s, again
}

func (h *hub) leave(s *seat) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.seats[s.enrollment.Site] == s {
		delete(h.seats, s.enrollment.Site)
	}
	h.unfollow(s)
}

// unfollow removes the members of a seat. The caller has the lock.
func (h *hub) unfollow(s *seat) {
	for _, id := range s.follows {
		if h.members[id] == s {
			delete(h.members, id)
		}
	}
	s.follows = nil
}

// count returns the number of changes of deployments until now.
func (h *hub) count() uint64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.changes
}

// follow notes the deployments at a site, as the store has them, about whose changes its agent is
// woken: also about those after the number since, before which they were read. What an agent says
// that it has isn't followed, since it could be that of others.
func (h *hub) follow(s *seat, all map[string]entry, since uint64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.seats[s.enrollment.Site] != s {
		return
	}
	h.unfollow(s)
	for id := range all {
		if id != "" {
			s.follows = append(s.follows, tko.DeploymentID(id))
			h.members[tko.DeploymentID(id)] = s
		}
	}
	if h.changes-since > noted {
		s.notify()
		return
	}
	for n := since; n < h.changes; n++ {
		if h.members[h.recent[n%noted]] == s {
			s.notify()
			return
		}
	}
}

// changed notes that a deployment has changed, wakes the agent that has it, and reports whether
// there are agents.
func (h *hub) changed(id tko.DeploymentID) (connected bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.recent[h.changes%noted] = id
	h.changes++
	if s := h.members[id]; s != nil {
		s.notify()
	}
	return len(h.seats) > 0
}

func (h *hub) wakeSite(id tko.SiteID) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if s := h.seats[id]; s != nil {
		s.notify()
	}
}

func (h *hub) wakeAll() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, s := range h.seats {
		s.notify()
	}
}

// setHolds replaces what is held after a restore, and wakes all if that differs.
func (h *hub) setHolds(all []tko.Hold) {
	held, heldAll := map[tko.SiteID]string{}, ""
	for _, one := range all {
		switch {
		case one.Queue != tko.QueueSchedule:
		case one.Key == "":
			heldAll = one.Mode
		default:
			held[tko.SiteID(one.Key)] = one.Mode
		}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.known && (heldAll != h.heldAll || !maps.Equal(held, h.held)) {
		for _, s := range h.seats {
			s.notify()
		}
	}
	h.held, h.heldAll, h.known = held, heldAll, true
}

// holdOf returns the mode of the hold of a site after a restore, or ""; known is false if holds were
// not read yet.
func (h *hub) holdOf(id tko.SiteID) (mode string, known bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.heldAll != "" {
		return h.heldAll, h.known
	}
	return h.held[id], h.known
}

// holdOf returns the mode of the hold of a site after a restore, or "".
func (s *Server) holdOf(ctx context.Context, id tko.SiteID) (mode string, err error) {
	mode, known := s.hub.holdOf(id)
	if known {
		return mode, nil
	}
	all, err := s.backend.Holds(ctx)
	if err != nil {
		return "", err
	}
	s.hub.setHolds(all)
	mode, _ = s.hub.holdOf(id)
	return mode, nil
}

// followRules ends the connections of agents that are revoked, and wakes all when stops or freezes
// may have changed.
func (s *Server) followRules(ctx context.Context) error {
	last := ""
	var heldAt time.Time
	failing := false
	for {
		err := s.readFence(ctx)
		if err == nil {
			err = s.readHolds(ctx, &heldAt)
		}
		if err == nil {
			last, err = s.readRules(ctx, last)
		}
		if err != nil && ctx.Err() == nil && !failing {
			s.options.Log.WarnContext(ctx, "can't read which agents may be connected; trying again", "err", err)
		}
		failing = err != nil
		if err := pause.For(ctx, pollRules); err != nil {
			return nil //nolint:nilerr // the context has ended
		}
	}
}

func (s *Server) readHolds(ctx context.Context, at *time.Time) error {
	if time.Since(*at) < pollHolds {
		return nil
	}
	all, err := s.backend.Holds(ctx)
	if err != nil {
		return err
	}
	*at = time.Now()
	s.hub.setHolds(all)
	return nil
}

func (s *Server) readRules(ctx context.Context, last string) (string, error) {
	all, now, err := s.backend.Enrollments(ctx)
	if err != nil {
		return last, err
	}
	s.hub.mutex.Lock()
	defer s.hub.mutex.Unlock()
	for _, seat := range s.hub.seats {
		if e, ok := all[seat.enrollment.ID]; !ok || !e.IsUsed() {
			seat.end(errRevoked)
		} else if now != last {
			seat.notify()
		}
	}
	return now, nil
}

// followChanges wakes the agents of the sites that changes of entities concern.
func (s *Server) followChanges(ctx context.Context) error {
	for {
		for change, err := range s.backend.Watch(ctx, -1, tko.KindSite, tko.KindDeployment) {
			if err == nil {
				err = s.concern(ctx, change)
			}
			if err != nil {
				if ctx.Err() == nil {
					s.options.Log.WarnContext(ctx, "can't follow changes for agents; trying again", "err", err)
				}
				break
			}
		}
		if err := pause.For(ctx, retryChanges); err != nil {
			return nil //nolint:nilerr // the context has ended
		}
		s.hub.wakeAll() // changes may have been missed
	}
}

// concern wakes the agents of the sites that a change concerns: those that have a deployment, and
// those that shall have it.
func (s *Server) concern(ctx context.Context, c tko.Change) error {
	if c.Op == tko.OpStatus {
		return nil
	}
	if c.Kind == tko.KindSite {
		s.hub.wakeSite(tko.SiteID(c.ID))
		return nil
	}
	if !s.hub.changed(tko.DeploymentID(c.ID)) || c.Op == tko.OpDeleted {
		return nil
	}
	found, err := s.backend.DeploymentsByID(ctx, []tko.DeploymentID{tko.DeploymentID(c.ID)})
	if errors.Is(err, tko.ErrNotFound) {
		return nil
	}
	for _, d := range found {
		if d.Site != "" {
			s.hub.wakeSite(d.Site)
		}
	}
	return err
}
