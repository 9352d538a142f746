package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	helloTimeout = 30 * time.Second // until the first message of an agent
	// againHeld is the time after which a site that is held is determined again, and again that of
	// others: most of what changes is followed.
	againHeld = 15 * time.Second
	again     = 10 * time.Minute

	maxEntries    = 100_000     // that an agent has, or that a site has
	maxNeeds      = 1000        // packages of one request
	maxStates     = 1000        // of one report
	updateSize    = 512 << 10   // of the documents of one message, in bytes
	chunkSize     = 256 << 10   // of a part of a package, in bytes
	maxSkew       = time.Minute // difference of the clocks of an agent and of this machine that is not reported
	aliveFraction = 4           // an agent reports that it is alive after this part of the time of silence
)

// A connection is that of an agent. One goroutine works on it.
type connection struct {
	server *Server
	stream grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]
	seat   *seat
	site   tko.SiteID
	uid    string
	cancel context.CancelFunc
	states *rate.Limiter

	entries map[string]entry // what the agent has, or is about to have
	held    *string          // the reason that was sent last; nil: none was sent
	sent    bool             // an update was sent
	heard   time.Time        // that the Connected condition states
	owner   *tko.Condition   // HeldByOwner, as of the last report; nil: there was none
}

// guarded is work, which returns a panic as an error.
func (c *connection) guarded(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.options.Log.ErrorContext(ctx, "connection of an agent panicked", "site", c.site, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the connection panicked")
		}
	}()
	return c.work(ctx)
}

// work serves the connection until the context or the stream ends.
func (c *connection) work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inbox, failed := make(chan *agentpb.ConnectRequest), make(chan error, 1)
	c.server.workers.Go(func() { c.receive(ctx, inbox, failed) })
	if err := c.hello(ctx, inbox, failed); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case m := <-inbox:
			if err := c.handle(ctx, m); err != nil {
				return err
			}
			continue
		case <-c.seat.wake:
		case <-timer.C:
		}
		if err := c.update(ctx); err != nil {
			return err
		}
		timer.Reset(pause.About(c.next(), 0.2))
	}
}

func (c *connection) next() time.Duration {
	if c.held != nil && *c.held != "" {
		return againHeld
	}
	return again
}

// receive receives messages until the stream ends.
func (c *connection) receive(ctx context.Context, inbox chan<- *agentpb.ConnectRequest, failed chan<- error) {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case inbox <- m:
		case <-ctx.Done():
			return
		}
	}
}

// hello reads the first message: what the agent has.
func (c *connection) hello(ctx context.Context, inbox <-chan *agentpb.ConnectRequest, failed <-chan error) error {
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	var hello *agentpb.Hello
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-failed:
		return err
	case <-timer.C:
		return tko.Errorf(tko.ErrInvalid, "the agent has sent nothing for %s", helloTimeout)
	case m := <-inbox:
		hello = m.GetHello()
		if hello == nil {
			return tko.Errorf(tko.ErrInvalid, "the first message of an agent is what it has")
		}
	}
	if len(hello.GetEntries()) > maxEntries {
		return tko.Errorf(tko.ErrInvalid, "the agent has %d entries: at most %d are supported", len(hello.GetEntries()), maxEntries)
	}
	c.entries = map[string]entry{}
	for _, e := range hello.GetEntries() {
		c.entries[e.GetId()] = entry{digest: e.GetDigest()}
	}
	if at := hello.GetClockUnix(); at != 0 {
		if ahead := time.Until(time.Unix(at, 0)).Round(time.Second); ahead.Abs() > maxSkew {
			c.server.options.Log.WarnContext(ctx, "the clocks of this machine and of an agent differ: set the one that is wrong", "site", c.site, "agent_ahead", ahead)
		}
	}
	if err := c.send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Welcome{Welcome: c.server.welcome(c.seat.epoch)}}); err != nil {
		return err
	}
	if hello.GetEpoch() > c.seat.epoch {
		if err := c.fenced(ctx, hello.GetEpoch()); err != nil {
			return err
		}
		return tko.Errorf(tko.ErrConflict, "%s", tko.FencedText(c.site, hello.GetEpoch(), c.seat.epoch))
	}
	return c.isHeard(ctx)
}

// send sends a message; if the agent doesn't read it in time, the connection ends.
func (c *connection) send(m *agentpb.ConnectResponse) error {
	timer := time.AfterFunc(sendTimeout, c.cancel)
	defer timer.Stop()
	return c.stream.Send(m)
}

// isHeard writes that the agent is heard, unless that was written lately.
func (c *connection) isHeard(ctx context.Context) error {
	now := time.Now()
	if now.Sub(c.heard) < c.server.options.Silence/(aliveFraction+1) {
		return nil
	}
	if err := c.permit(ctx); err != nil { // what was written about a revocation stays
		return err
	}
	first := c.heard.IsZero()
	site, err := c.server.backend.Site(ctx, c.site, 0)
	if errors.Is(err, tko.ErrNotFound) || err == nil && site.Stamp.UID != c.uid {
		return nil
	}
	if err != nil {
		return err
	}
	heard := tko.HeardCondition(now, now.Add(c.server.options.Silence))
	heard.ObservedRevision = site.Stamp.Revision
	if err := c.write(ctx, tko.KindSite, string(c.site), append(c.ownerChanges(site), heard)); err != nil {
		return err
	}
	c.heard = now
	if first { // so that its silence is noticed
		return c.server.backend.EnqueueSites(ctx, []tko.SiteID{c.site})
	}
	return nil
}

// permit returns an error once the agent is revoked: nothing is sent or taken over from then on, also
// before the connection is ended.
func (c *connection) permit(ctx context.Context) error {
	all, _, err := c.server.backend.Enrollments(ctx)
	if err != nil {
		return err
	}
	if e, ok := all[c.seat.enrollment.ID]; !ok || !e.IsUsed() {
		return errRevoked
	}
	return nil
}

// write writes conditions of the site, or of a deployment at it. What is stopped or deleted keeps
// those that it has.
func (c *connection) write(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	err := c.server.backend.SetConditions(ctx, kind, id, conditions)
	if errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrStopped) {
		return nil
	}
	return err
}

// update sends what the site shall have and the agent doesn't, or why nothing may change.
func (c *connection) update(ctx context.Context) error {
	since := c.server.hub.count()
	d, err := c.server.desired(ctx, c.site, c.uid)
	if err != nil {
		return err
	}
	if d.hold == "" && d.keep && len(c.entries) == 0 && !c.sent {
		d.hold = fmt.Sprintf("the server's store was restored from a backup, and the agent of site %q has a new folder: it can't know what the site has and the store has lost, and would remove it; run it with its former folder, or release the site with tko hold release %s --remove", c.site, c.site)
	}
	if d.hold != "" {
		return c.hold(d.hold)
	}
	c.server.hub.follow(c.seat, d.entries, since)
	if err := c.permit(ctx); err != nil { // after what is sent was read
		return err
	}
	removed := slices.DeleteFunc(slices.Sorted(maps.Keys(c.entries)), func(id string) bool { _, ok := d.entries[id]; return ok })
	if d.keep { // the agent may have what the store lost
		for _, id := range removed {
			d.entries[id] = c.entries[id]
		}
		removed = nil
	}
	var changed []*agentpb.Entry
	for _, id := range slices.Sorted(maps.Keys(d.entries)) {
		if e := d.entries[id]; e.digest != c.entries[id].digest {
			changed = append(changed, &agentpb.Entry{Id: id, Digest: e.digest, Document: e.document, Package: e.pkg})
		}
	}
	if len(changed) > 0 || len(removed) > 0 || !c.sent {
		if err := c.sendUpdate(d, changed, removed); err != nil {
			return err
		}
		c.sent = true
	}
	for id, e := range d.entries {
		e.document = nil
		d.entries[id] = e
	}
	c.entries = d.entries
	return c.hold("")
}

// hold says why nothing may change, unless the agent knows it. The end of a hold follows what
// changed meanwhile.
func (c *connection) hold(reason string) error {
	if c.held != nil && *c.held == reason {
		return nil
	}
	c.held = &reason
	return c.send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Hold{Hold: &agentpb.Hold{Reason: reason}}})
}

func (c *connection) sendUpdate(d desired, changed []*agentpb.Entry, removed []string) error {
	for {
		m := &agentpb.Update{Cursor: d.cursor, Missing: uint32(d.missing), More: true} //nolint:gosec // a count
		size := 0
		for len(changed) > 0 && (size == 0 || size+len(changed[0].GetDocument()) <= updateSize) {
			size += len(changed[0].GetDocument()) + 256
			m.Changed, changed = append(m.Changed, changed[0]), changed[1:]
		}
		for len(removed) > 0 && size <= updateSize {
			size += len(removed[0]) + 16
			m.Removed, removed = append(m.Removed, removed[0]), removed[1:]
		}
		if len(changed)+len(removed) == 0 {
			m.More, m.Digest = false, digestOf(d.entries)
		}
		if err := c.send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Update{Update: m}}); err != nil || !m.More {
			return err
		}
	}
}

// handle handles a message of the agent.
func (c *connection) handle(ctx context.Context, m *agentpb.ConnectRequest) error {
	if err := c.permit(ctx); err != nil {
		return err
	}
	switch {
	case m.GetNeed() != nil:
		return c.supply(ctx, m.GetNeed().GetPackages())
	case m.GetReport() != nil:
		return c.take(ctx, m.GetReport())
	}
	return tko.Errorf(tko.ErrInvalid, "the agent sent a message that this server doesn't know: update the server before its agents")
}

// supply sends packages of what the agent is about to have; others are gone, whether or not they
// exist elsewhere.
func (c *connection) supply(ctx context.Context, digests []string) error {
	if len(digests) > maxNeeds {
		return tko.Errorf(tko.ErrInvalid, "the agent requests %d packages at once: use at most %d", len(digests), maxNeeds)
	}
	for _, digest := range digests {
		data, err := c.packageOf(ctx, digest)
		if err != nil {
			return err
		}
		if err := c.sendPackage(digest, data); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) sendPackage(digest string, data []byte) error {
	for offset := 0; ; offset += chunkSize {
		m := &agentpb.Package{Digest: digest, Size: uint64(len(data)), Offset: uint64(offset), Data: data[offset:min(offset+chunkSize, len(data))]}
		if err := c.send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Package{Package: m}}); err != nil {
			return err
		}
		if offset+chunkSize >= len(data) {
			return nil
		}
	}
}

// packageOf returns the encoded package with a digest of an entry of the site; nil if no entry has
// it now.
func (c *connection) packageOf(ctx context.Context, digest string) ([]byte, error) {
	for id, e := range c.entries {
		if e.pkg != digest || digest == "" {
			continue
		}
		content, err := c.read(ctx, id)
		if errors.Is(err, tko.ErrNotFound) || err == nil && content.Digest != digest {
			continue
		}
		return content.Package, err
	}
	return nil, nil
}

// read reads the content of an entry of the site.
func (c *connection) read(ctx context.Context, id string) (bundle.Content, error) {
	if id == "" {
		site, err := c.server.backend.Site(ctx, c.site, 0)
		if err != nil {
			return bundle.Content{}, err
		}
		if site.Stamp.UID != c.uid {
			return bundle.Content{}, tko.NotFound(tko.KindSite, string(c.site))
		}
		row, err := bundle.SiteRow(site)
		if err != nil {
			return bundle.Content{}, err
		}
		return row.Site.Content, nil
	}
	d, err := c.server.backend.Deployment(ctx, tko.DeploymentID(id), 0)
	if err == nil && d.Site != c.site { // it has moved, and so has what it may contain
		err = tko.NotFound(tko.KindDeployment, id)
	}
	if err != nil {
		return bundle.Content{}, err
	}
	row, _, err := bundle.DeploymentRow(d)
	if err != nil {
		return bundle.Content{}, err
	}
	return row.Deployment.Content, nil
}

// take takes over a report: conditions about the revisions that the entities have now. Entities
// that are not the site, or at it, are not looked at.
func (c *connection) take(ctx context.Context, m *agentpb.Report) error {
	c.server.options.Observer.Reported()
	if len(m.GetStates()) > maxStates {
		return tko.Errorf(tko.ErrInvalid, "the agent reports %d states at once: use at most %d", len(m.GetStates()), maxStates)
	}
	if err := c.states.WaitN(ctx, len(m.GetStates())+1); err != nil {
		return err
	}
	if err := c.ownerSays(ctx, m.GetOwnerHold()); err != nil {
		return err
	}
	var states []bundle.State
	for _, one := range m.GetStates() {
		state := bundle.State{Kind: tko.Kind(one.GetKind()), ID: one.GetId(), Revision: one.GetRevision()}
		for _, condition := range one.GetConditions() {
			state.Conditions = append(state.Conditions, bundle.Condition{Type: condition.GetType(), Status: condition.GetStatus(), Reason: condition.GetReason(), Message: condition.GetMessage()})
		}
		if err := bundle.CheckState(state, c.site); err != nil {
			c.server.options.Log.WarnContext(ctx, "an agent reports what it may not", "site", c.site, "err", err)
			return err
		}
		states = append(states, state)
	}
	// It is heard before what it reports is taken over: who still says that it isn't, is late then.
	if err := c.isHeard(ctx); err != nil || len(states) == 0 {
		return err
	}
	return c.takeStates(ctx, states)
}

func (c *connection) takeStates(ctx context.Context, states []bundle.State) error {
	site, err := c.server.backend.Site(ctx, c.site, 0)
	if errors.Is(err, tko.ErrNotFound) || err == nil && site.Stamp.UID != c.uid {
		return nil
	}
	if err != nil {
		return err
	}
	here := map[string]tko.Stamp{}
	at := tko.DeploymentSelect{Sites: []string{tko.LiteralPattern(string(c.site))}}
	for d, err := range c.server.backend.Deployments(ctx, at, tko.ListOptions{}) {
		if err != nil {
			return err
		}
		here[string(d.ID)] = d.Stamp
	}
	now := time.Now()
	for _, state := range states {
		stamp, ok := here[state.ID]
		if state.Kind == tko.KindSite {
			stamp, ok = site.Stamp, true
		}
		if !ok || stamp.Revision != state.Revision {
			continue
		}
		var changed []tko.Condition
		for _, one := range state.Taken() {
			next := tko.AgentCondition(one, now)
			if was := tko.FindCondition(stamp.Conditions, one.Type); was == nil || !tko.SameReport(*was, next) {
				changed = append(changed, next)
			}
		}
		if was := tko.FindCondition(stamp.Conditions, tko.ConditionHealthy); was != nil && was.Reason == tko.ReasonNotHeard && !state.Has(tko.ConditionHealthy) {
			changed = append(changed, tko.Condition{
				Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonByAgent, ObservedRevision: state.Revision,
				Message: fmt.Sprintf("the agent of site %q is connected, and has not reported the health", c.site),
			})
		}
		if len(changed) == 0 {
			continue
		}
		if err := c.write(ctx, state.Kind, state.ID, changed); err != nil {
			return err
		}
	}
	return nil
}
