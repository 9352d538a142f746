package agent

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	// DefaultInterval is the default time between two corrections of what others have changed.
	DefaultInterval = time.Minute
	// The time until a site is reconciled again that isn't as it shall be: it doubles.
	firstRetry, lastRetry = 2 * time.Second, 30 * time.Second
	// The time until the server is called again: it doubles, and is spread.
	firstCall, lastCall = 2 * time.Second, time.Minute
	// serverFirst is the time for which a site isn't changed after the start, if the server hasn't said
	// yet what it shall have: the folder may be an old snapshot.
	serverFirst = 10 * time.Second
)

// RunOptions are the settings of Run.
type RunOptions struct {
	Server Server
	// Others are further servers, in the order of preference, which are called if those before don't
	// serve the agent. Their tokens are that of Server.
	Others []Server
	// Return is the time after which those that are preferred are asked whether they serve the agent
	// again; DefaultReturn if 0.
	Return   time.Duration
	Interval time.Duration // between two corrections; DefaultInterval if 0
	// Owner is the file with which the owner of the site holds back changes; owner.yaml in the
	// agent's folder if empty.
	Owner string
}

// Run is the agent of a site that calls home, until the context ends: it gets what the site shall
// have from the server, applies it, and reports what became of it. Without a connection, it applies
// what it got last, and corrects what others change.
func (a *Agent) Run(ctx context.Context, p Place, o RunOptions) error {
	if err := p.Check(); err != nil {
		return err
	}
	if err := a.readHold(); err != nil {
		return err
	}
	if _, err := a.folder.epoch(); err != nil {
		return err
	}
	o.Interval, o.Return = cmp.Or(o.Interval, DefaultInterval), cmp.Or(o.Return, DefaultReturn)
	a.owner = cmp.Or(o.Owner, a.folder.file(ownerFile))
	servers := append([]Server{o.Server}, o.Others...)
	if len(servers) > maxServers {
		return tko.Errorf(tko.ErrInvalid, "there are %d servers: name at most %d", len(servers), maxServers)
	}
	r := &runner{agent: a, place: p, options: o, servers: servers, wake: make(chan struct{}, 1), news: make(chan struct{}, 1), current: make(chan struct{}, 1)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.apply(ctx) })
	group.Go(func() error { return r.call(ctx) })
	group.Go(func() error { return r.followOwner(ctx) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// A runner is a call of Run.
type runner struct {
	agent   *Agent
	place   Place
	options RunOptions
	servers []Server      // the preferred one first
	wake    chan struct{} // has an element if there is something new to apply
	news    chan struct{} // has an element if there is something new to report
	current chan struct{} // has an element once the agent has what the server says

	mutex      sync.Mutex
	outcome    Outcome // the newest
	connection struct {
		Connection

		written bool // to the disk
	}
}

// own are the keys that sign what the agent accepts: its own, because the connection was verified.
func (a *Agent) own() []ed25519.PublicKey {
	public, ok := a.key.Public().(ed25519.PublicKey)
	if !ok {
		return nil
	}
	return []ed25519.PublicKey{public}
}

func notify(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// apply applies what was accepted last, again and again.
func (r *runner) apply(ctx context.Context) error {
	first := time.NewTimer(serverFirst)
	defer first.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.current:
	case <-first.C:
	}
	retry := firstRetry
	for {
		wait := r.options.Interval
		if r.applyOnce(ctx) {
			retry = firstRetry
		} else {
			wait, retry = min(retry, wait), min(2*retry, lastRetry)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-r.wake:
			retry = firstRetry
		case <-timer.C:
		}
		timer.Stop()
	}
}

// applyOnce reports whether the site is as it shall be, or nothing can be done about it now.
func (r *runner) applyOnce(ctx context.Context) (whole bool) {
	a := r.agent
	was, err := a.accepted()
	if err != nil {
		a.log.ErrorContext(ctx, "can't read what the site shall have; the server sends it again", "err", err)
		return false
	}
	if was == nil || a.held() != "" {
		return true
	}
	o, err := a.Apply(ctx, a.own(), r.place, 0)
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		a.log.WarnContext(ctx, "the site could not be reconciled; trying again", "err", err)
	}
	if len(o.States) > 0 {
		r.publish(ctx, o)
	}
	return err == nil && o.Whole()
}

// followOwner reports what the owner of the site says when that changes, and lets the site be
// reconciled when the owner permits it.
func (r *runner) followOwner(ctx context.Context) error {
	last := ownerHold{}
	for {
		now := r.agent.owned()
		switch {
		case now == last:
		case now.text != "":
			r.agent.log.WarnContext(ctx, "the owner of the site holds back changes", "reason", now.text)
			notify(r.news)
		default:
			r.agent.log.InfoContext(ctx, "the owner of the site permits changes again")
			notify(r.news)
			notify(r.wake)
		}
		last = now
		if err := pause.For(ctx, ownerPoll); err != nil {
			return err
		}
	}
}

// publish makes an outcome the newest.
func (r *runner) publish(ctx context.Context, o Outcome) {
	r.mutex.Lock()
	was := r.outcome
	r.outcome = o
	r.mutex.Unlock()
	if was.Statement.Digest != o.Statement.Digest || was.Scheduled != o.Scheduled || was.Healthy != o.Healthy || was.Deployments != o.Deployments {
		r.agent.log.InfoContext(ctx, "reconciled", "cursor", o.Statement.Serial, "deployments", o.Deployments, "scheduled", o.Scheduled, "healthy", o.Healthy, "kept", o.Kept)
	}
	notify(r.news)
}

func (r *runner) newest() Outcome {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.outcome
}

// call is connected to a server, and connects again: to the one that is preferred, or, if it doesn't
// serve the agent, to the next.
func (r *runner) call(ctx context.Context) error {
	delay, failing := firstCall, map[int]string{}
	for i := 0; ; {
		began, s := time.Now(), r.servers[i]
		err := r.connected(ctx, i)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.note(s, err)
		if errors.Is(err, errRenewed) {
			continue
		}
		if better, ok := errors.AsType[*betterError](err); ok {
			i = better.index
			continue
		}
		if isUnenrolled(err) && s.TokenFile != "" {
			// The token may be a new one: of the one that was used, the server knows.
			again := r.agent.folder.enroll(ctx, s)
			if again == nil {
				r.agent.log.InfoContext(ctx, "enrolled again", "server", s.Address)
				continue
			}
			if errors.Is(again, tko.ErrUnavailable) { // such as an agent that waits until it is approved
				err = again
			}
		}
		if text := stable(err); text != failing[i] { // once
			r.agent.log.WarnContext(ctx, "not connected to the server; going on with what the site shall have as of the last connection", "server", s.Address, "err", err)
			failing[i] = text
		}
		wait := delay
		switch was := time.Since(began) > lastCall; {
		case was: // it served the agent
			i, delay, wait = 0, firstCall, firstCall
		case i+1 < len(r.servers):
			i, wait = i+1, firstCall
		default:
			i, delay = 0, min(2*delay, lastCall)
		}
		if err := pause.For(ctx, pause.Between(wait/4, wait)); err != nil {
			return err
		}
	}
}

// errRenewed ends a connection because there is a newer certificate.
var errRenewed = errors.New("the certificate was renewed")

// connected connects once to the server with an index, and returns why the connection has ended;
// never nil.
func (r *runner) connected(ctx context.Context, index int) error {
	cert, err := r.agent.folder.certificate()
	if err != nil {
		return err
	}
	if cert == nil {
		return tko.Errorf(tko.ErrUnauthenticated, "the agent has no certificate")
	}
	s := r.servers[index]
	conn, err := s.dial(cert)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return s.aboutClock(newLink(r, conn, index, renewal(cert.Leaf)).run(ctx), cert)
}

// A holdJSON is the file of a hold.
type holdJSON struct {
	Reason string `json:"reason"`
}

// readHold reads whether the server said that nothing may change.
func (a *Agent) readHold() error {
	text, err := a.folder.read(holdFile)
	if err != nil {
		return err
	}
	var h holdJSON
	if text != nil {
		if err := json.Unmarshal(text, &h); err != nil {
			return fmt.Errorf("reading %s: %w: remove it if the site may be changed", a.folder.file(holdFile), err)
		}
	}
	a.hold.Store(nil)
	if h.Reason != "" {
		a.hold.Store(&h.Reason)
	}
	return nil
}

// setHold keeps why nothing may change at the site; "" if it may. It takes effect at once, also for
// what is being applied, and then on the disk.
func (a *Agent) setHold(reason string) error {
	text, err := json.Marshal(holdJSON{reason})
	if err != nil {
		return err
	}
	if reason != "" {
		a.hold.Store(&reason)
		return a.folder.replace(holdFile, text)
	}
	if a.hold.Load() == nil {
		return nil
	}
	if err := a.folder.replace(holdFile, text); err != nil {
		return err
	}
	a.hold.Store(nil)
	return nil
}
