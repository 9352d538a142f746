package agents

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Defaults of Options.
const (
	DefaultValidity = 30 * 24 * time.Hour
	DefaultSilence  = 10 * time.Minute
)

// The limits of connections.
const (
	maxMessage  = 4 << 20
	maxCalls    = 8 // concurrent ones of one connection
	handshake   = 20 * time.Second
	sendTimeout = time.Minute // for one message, which the agent must read
	// readBuffer is the size of the buffer of each connection, most of which are idle.
	readBuffer = 4 << 10
	// computing is the number of sites for which is determined at the same time what they shall
	// have: each is read with all packages of its deployments.
	computing = 8
	// reporting is the number of states in a second that one agent may report, after a first
	// reporting burst.
	reporting      = 100
	reportingBurst = 20_000
)

// A Backend is the catalog.
type Backend interface {
	enrollments
	entities
	holds
	Position(ctx context.Context) (int64, error)
	SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error
	EnqueueSites(ctx context.Context, ids []tko.SiteID) error
}

type enrollments interface {
	fences
	RedeemEnrollment(ctx context.Context, token, key string) (tko.AgentEnrollment, error)
	ClaimSite(ctx context.Context, claim tko.AgentClaim) (tko.AgentEnrollment, error)
	Enrollments(ctx context.Context) (all map[string]tko.AgentEnrollment, holds string, err error)
}

type entities interface {
	Site(ctx context.Context, id tko.SiteID, revision int64) (tko.Site, error)
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error]
	DeploymentsByID(ctx context.Context, ids []tko.DeploymentID) ([]tko.Deployment, error)
	Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error]
}

type fences interface {
	Fence(ctx context.Context) (tko.Fence, error)
}

type holds interface {
	SiteStop(ctx context.Context, id tko.SiteID) (tko.SiteStop, error)
	Freezes(ctx context.Context) ([]tko.Freeze, error)
	SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error)
	Holds(ctx context.Context) ([]tko.Hold, error)
}

// Options are the settings of a server. The zero value works.
type Options struct {
	Validity time.Duration // of the certificates of agents; DefaultValidity if 0
	Silence  time.Duration // after which it is unknown what a site has whose agent isn't heard; DefaultSilence if 0
	Version  string        // of this program
	Log      *slog.Logger  // none if nil
	Observer Observer      // none if nil
}

// An Observer counts what agents do. Its methods are called concurrently, and must not block.
type Observer interface {
	// Connected counts agents that connect (1) and leave (-1).
	Connected(change int)
	// Connection counts the connections of agents, and what they ask for instead, by one of the kinds below.
	Connection(kind string)
	// Reported counts reports.
	Reported()
	// Transferred counts bytes of messages, without TLS.
	Transferred(received, sent int)
}

// The kinds of connections.
const (
	ConnectionFirst   = "first"   // the first one of an agent since this server started
	ConnectionAgain   = "again"   // a further one
	ConnectionFenced  = "fenced"  // one whose agent refuses this server: it has seen a greater fencing epoch
	ConnectionRefused = "refused" // without a valid certificate
)

type unobserved struct{}

func (unobserved) Connected(int)        {}
func (unobserved) Connection(string)    {}
func (unobserved) Reported()            {}
func (unobserved) Transferred(int, int) {}

// A transfer observes the bytes of messages.
type transfer struct{ observer Observer }

// TagRPC implements [stats.Handler].
func (transfer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements [stats.Handler].
func (transfer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (transfer) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC implements [stats.Handler].
func (t transfer) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch m := s.(type) {
	case *stats.InPayload:
		t.observer.Transferred(m.WireLength, 0)
	case *stats.OutPayload:
		t.observer.Transferred(0, m.WireLength)
	}
}

// A Server serves agents. It is safe for concurrent use.
type Server struct {
	agentpb.UnimplementedAgentsServer

	backend   Backend
	authority *Authority
	options   Options
	hub       *hub
	enrolls   *turnstile
	compute   chan struct{}  // has a place for each site that is computed
	workers   sync.WaitGroup // of connections
}

// New makes a server.
func New(backend Backend, authority *Authority, o Options) *Server {
	o.Validity, o.Silence = cmp.Or(o.Validity, DefaultValidity), cmp.Or(o.Silence, DefaultSilence)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observer == nil {
		o.Observer = unobserved{}
	}
	return &Server{
		backend: backend, authority: authority, options: o, hub: newHub(),
		enrolls: newTurnstile(), compute: make(chan struct{}, computing),
	}
}

// GRPC returns the gRPC server of s, with the TLS configuration of its listeners, which must verify
// the certificates that clients give. The caller serves and stops it.
func (s *Server) GRPC(secure *tls.Config) *grpc.Server {
	g := grpc.NewServer(
		grpc.StatsHandler(transfer{s.options.Observer}),
		grpc.Creds(credentials.NewTLS(secure)), grpc.ConnectionTimeout(handshake), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls), grpc.WaitForHandlers(true),
		grpc.ReadBufferSize(readBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: 2 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 20 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, m any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
			defer func() { err = s.status(ctx, info.FullMethod, recover(), err) }()
			return handle(own(ctx), m)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
			defer func() { err = s.status(stream.Context(), info.FullMethod, recover(), err) }()
			return handle(server, stream)
		}),
	)
	agentpb.RegisterAgentsServer(g, s)
	return g
}

// Run follows the changes of the catalog for the agents that are connected, until the context ends.
// The gRPC server must be stopped before.
func (s *Server) Run(ctx context.Context) error {
	ctx = own(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.followRules(ctx) })
	group.Go(func() error { return s.followChanges(ctx) })
	err := group.Wait()
	s.workers.Wait()
	return err
}

// own returns the context of calls of the catalog: the rights of agents are decided here.
func own(ctx context.Context) context.Context {
	return identity.With(ctx, identity.Controller(identity.RoleServer))
}

// status returns the error of a call for its client.
func (s *Server) status(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		s.options.Log.ErrorContext(ctx, "call of an agent panicked", "method", method, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		return status.Error(codes.Internal, "internal error, see the server's log")
	}
	if err == nil {
		return nil
	}
	if st := wire.Status(err, wire.DefaultErrorSize); st != nil {
		return st.Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	s.options.Log.ErrorContext(ctx, "call of an agent failed", "method", method, "peer", peerOf(ctx), "err", err)
	return status.Error(codes.Internal, "internal error, see the server's log")
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return "unknown"
}

// Enroll implements the service.
func (s *Server) Enroll(ctx context.Context, m *agentpb.EnrollRequest) (*agentpb.CertificateResponse, error) {
	if err := s.enrolls.pass(ctx); err != nil {
		return nil, err
	}
	epoch, err := s.epoch(ctx)
	if err != nil {
		return nil, err
	}
	if m.GetEpoch() > epoch { // before the token is used
		return nil, tko.Errorf(tko.ErrConflict, "the agent has seen a store with the fencing epoch %s, and this one has %s: enroll it there", tko.EpochText(m.GetEpoch()), tko.EpochText(epoch))
	}
	r, err := parseRequest(m.GetCertificateRequest()) // before the token is used
	if err != nil {
		return nil, err
	}
	ctx = tko.WithAuthor(ctx, tko.Author{Who: "agent@" + peerOf(ctx)})
	claim := tko.AgentClaim{Site: tko.SiteID(m.GetClaimedSite()), Token: tko.EnrollmentHash(m.GetToken()), Key: r.hash, From: peerOf(ctx)}
	var e tko.AgentEnrollment
	if claim.Site == "" {
		e, err = s.backend.RedeemEnrollment(ctx, claim.Token, claim.Key)
	} else {
		e, err = s.backend.ClaimSite(ctx, claim)
	}
	if err != nil {
		if errors.Is(err, tko.ErrDenied) {
			s.options.Log.WarnContext(ctx, "enrollment of an agent refused", "peer", peerOf(ctx))
		}
		return nil, err
	}
	s.options.Log.InfoContext(ctx, "agent enrolled", "site", e.Site, "peer", peerOf(ctx))
	return s.issue(e, r, epoch)
}

// Renew implements the service.
func (s *Server) Renew(ctx context.Context, m *agentpb.RenewRequest) (*agentpb.CertificateResponse, error) {
	e, _, err := s.agentOf(ctx)
	if err != nil {
		return nil, err
	}
	r, err := parseRequest(m.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	epoch, err := s.epoch(ctx)
	if err != nil {
		return nil, err
	}
	return s.issue(e, r, epoch)
}

func (s *Server) issue(e tko.AgentEnrollment, r request, epoch int64) (*agentpb.CertificateResponse, error) {
	chain, err := s.authority.issue(e, r, time.Now(), s.options.Validity)
	if err != nil {
		return nil, err
	}
	return &agentpb.CertificateResponse{SiteId: string(e.Site), Certificates: chain, Epoch: epoch}, nil
}

// agentOf returns the enrollment of the agent that calls, and its certificate. ErrUnauthenticated
// without a valid certificate; ErrDenied if it was revoked.
func (s *Server) agentOf(ctx context.Context) (tko.AgentEnrollment, *x509.Certificate, error) {
	var cert *x509.Certificate
	if p, ok := peer.FromContext(ctx); ok {
		if secure, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(secure.State.VerifiedChains) > 0 {
			cert = secure.State.VerifiedChains[0][0]
		}
	}
	if cert == nil || time.Now().After(cert.NotAfter) {
		return tko.AgentEnrollment{}, nil, tko.Errorf(tko.ErrUnauthenticated, "the agent has no valid certificate: enroll it with the token of tko site enroll (--token-file)")
	}
	all, _, err := s.backend.Enrollments(own(ctx))
	if err != nil {
		return tko.AgentEnrollment{}, nil, err
	}
	e, ok := all[enrollmentOf(cert)]
	if !ok || !e.IsUsed() {
		return tko.AgentEnrollment{}, nil, errRevoked
	}
	return e, cert, nil
}

var errRevoked = tko.Errorf(tko.ErrDenied, "the certificate of the agent was revoked, or another agent of the site was enrolled: nothing at the site was changed; enroll it again with the token of tko site enroll (--token-file)")

// Connect implements the service.
func (s *Server) Connect(stream grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	e, cert, err := s.agentOf(stream.Context())
	if err != nil {
		s.options.Observer.Connection(ConnectionRefused)
		s.options.Log.InfoContext(stream.Context(), "connection of an agent refused", "peer", peerOf(stream.Context()), "err", err)
		return err
	}
	ctx, cancel := context.WithDeadline(own(stream.Context()), cert.NotAfter)
	defer cancel()
	ctx = tko.WithAuthor(ctx, tko.Author{Who: fmt.Sprintf("agent of site %q", e.Site)})
	epoch, err := s.epoch(ctx)
	if err != nil {
		return err
	}
	seat, again := s.hub.join(e, epoch)
	if _, _, err := s.agentOf(stream.Context()); err != nil { // revoked before the seat was there to be ended
		s.hub.leave(seat)
		s.options.Observer.Connection(ConnectionRefused)
		return err
	}
	kind := ConnectionFirst
	if again {
		kind = ConnectionAgain
	}
	s.options.Observer.Connection(kind)
	s.options.Observer.Connected(1)
	c := &connection{server: s, stream: stream, seat: seat, site: e.Site, uid: e.SiteUID, cancel: cancel, states: rate.NewLimiter(reporting, reportingBurst)}
	s.options.Log.InfoContext(ctx, "agent connected", "site", e.Site, "peer", peerOf(ctx))
	done := make(chan error, 1)
	// The worker may be in a call that only the end of this method ends.
	s.workers.Go(func() {
		defer s.options.Observer.Connected(-1)
		defer s.hub.leave(seat)
		done <- c.guarded(ctx)
	})
	select {
	case err = <-done:
	case err = <-seat.ended:
	case <-ctx.Done():
		if err = context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = tko.Errorf(tko.ErrUnauthenticated, "the certificate of the agent has expired: connect with a newer one")
		}
	}
	s.options.Log.InfoContext(ctx, "agent disconnected", "site", e.Site, "err", err)
	return err
}
