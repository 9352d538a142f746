package agents

import (
	"context"
	"errors"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
)

// fencedTimeout is the time in which it is written that an agent refuses this server.
const fencedTimeout = 10 * time.Second

// errPromoted ends the connections of agents that got a former epoch.
var errPromoted = tko.Errorf(tko.ErrUnavailable, "the store of the server was promoted, or restored: connect again")

// epoch returns the fencing epoch of the store. ErrUnavailable if it is on standby: the store that
// its backup is of may still command agents.
func (s *Server) epoch(ctx context.Context) (int64, error) {
	f, err := s.backend.Fence(own(ctx))
	if err == nil && f.Standby {
		s.options.Observer.Connection(ConnectionRefused)
		err = tko.Errorf(tko.ErrUnavailable, "the store of this server was restored from a backup, and commands no agents until it is promoted (tko-server promote) or a site is released (tko hold release)")
	}
	return f.Epoch, err
}

// readFence ends the connections of agents that got another epoch than that of the store now.
func (s *Server) readFence(ctx context.Context) error {
	f, err := s.backend.Fence(ctx)
	if err != nil {
		return err
	}
	s.hub.mutex.Lock()
	defer s.hub.mutex.Unlock()
	for _, seat := range s.hub.seats {
		if f.Standby || seat.epoch != f.Epoch {
			seat.end(errPromoted)
		}
	}
	return nil
}

// Greet implements the service.
func (s *Server) Greet(ctx context.Context, m *agentpb.GreetRequest) (*agentpb.Welcome, error) {
	e, _, err := s.agentOf(ctx)
	if err != nil {
		return nil, err
	}
	epoch, err := s.epoch(ctx)
	if err != nil {
		return nil, err
	}
	if m.GetEpoch() > epoch {
		c := &connection{server: s, seat: &seat{enrollment: e, epoch: epoch}, site: e.Site, uid: e.SiteUID}
		if err := c.fenced(own(ctx), m.GetEpoch()); err != nil {
			return nil, err
		}
	}
	return s.welcome(epoch), nil
}

// welcome returns the first message for an agent.
func (s *Server) welcome(epoch int64) *agentpb.Welcome {
	alive := max(s.options.Silence/aliveFraction, time.Second)
	return &agentpb.Welcome{Version: s.options.Version, AliveSeconds: uint32(alive / time.Second), ClockUnix: time.Now().Unix(), Epoch: epoch} //nolint:gosec // settings limit it
}

// fenced writes that the agent refuses this server, because it has seen a greater fencing epoch than
// that of the store. It is about this agent only: an agent may say what it likes.
func (c *connection) fenced(ctx context.Context, seen int64) error {
	c.server.options.Observer.Connection(ConnectionFenced)
	text := tko.FencedText(c.site, seen, c.seat.epoch)
	c.server.options.Log.WarnContext(ctx, "an agent refuses this server: it has seen a greater fencing epoch", "site", c.site, "seen", seen, "epoch", c.seat.epoch)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencedTimeout) // the agent ends the connection
	defer cancel()
	if err := c.permit(ctx); err != nil {
		return err
	}
	site, err := c.server.backend.Site(ctx, c.site, 0)
	if errors.Is(err, tko.ErrNotFound) || err == nil && site.Stamp.UID != c.uid {
		return nil
	}
	if err != nil {
		return err
	}
	next := tko.Condition{
		Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonFenced, Message: text,
		ObservedRevision: site.Stamp.Revision, LastTransition: time.Now(),
	}
	if was := tko.FindCondition(site.Stamp.Conditions, tko.ConditionConnected); was != nil && isSame(*was, next) && was.ObservedRevision == next.ObservedRevision {
		return nil
	}
	if err := c.write(ctx, tko.KindSite, string(c.site), []tko.Condition{next}); err != nil {
		return err
	}
	return c.server.backend.EnqueueSites(ctx, []tko.SiteID{c.site}) // nothing there is healthy from memory
}
