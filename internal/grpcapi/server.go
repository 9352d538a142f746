package grpcapi

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress what they send
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// Defaults of Options.
const (
	// DefaultMaxMessage fits the largest package that krm decodes, with the other
	// fields of its message.
	DefaultMaxMessage = 72 << 20
	DefaultTimeout    = 5 * time.Minute
)

// streamWorkers is the number of goroutines that serve calls one after the
// other, so that their stacks don't grow for each call. If all are busy, a call
// gets a goroutine of its own.
const streamWorkers = 64

// maxConcurrentCalls is the maximum number of concurrent calls of one
// connection: further calls wait in the client.
const maxConcurrentCalls = 2000

// connectionTimeout limits the handshake of a connection.
const connectionTimeout = 20 * time.Second

// Options are the settings of a server. The zero value works.
type Options struct {
	Log           *slog.Logger    // none if nil
	DefaultFormat krm.Format      // of packages, for clients that don't set one; krm.CBOR if empty
	MaxMessage    int             // maximum size of a received message, in bytes; DefaultMaxMessage if 0
	Timeout       time.Duration   // for calls without a deadline that are not streams; DefaultTimeout if 0
	Stopping      <-chan struct{} // once it is closed, the health service reports it, and watches and waits for work end, because GracefulStop would wait for them
	Tracer        trace.Tracer    // of calls; none if nil
	Limits        Limits          // of long-lived calls; for limits per connection, the server must serve listeners made by Listen
	Turns         *turn.Queue     // of calls that read, with those of other transports; if nil, they begin at once
	SlowWatch     time.Duration   // maximum time that a watcher may read nothing; DefaultSlowWatch if 0
	ServerOptions []grpc.ServerOption

	// Observer counts calls; none if nil.
	Observer Observer
	// Callers authenticates callers; if nil, all are anonymous.
	Callers Authenticator
	// Secure makes connections secure; if nil, they are plain text.
	Secure *Secure
	// Impersonate returns whether a caller may name another author of its
	// changes; if nil, only our own controllers may.
	Impersonate func(ctx context.Context, caller identity.Identity) bool
	// Refused records a call whose caller could not be authenticated: where it came
	// from, and why. It may be nil.
	Refused func(ctx context.Context, source, detail string)
	// Recheck is the interval at which the credentials of streams are checked
	// again; DefaultRecheck if 0.
	Recheck time.Duration
}

// An Authenticator identifies callers: *authn.Authenticator in production.
type Authenticator interface {
	// Identify returns the caller of a call over a connection, with a token or "".
	// Missing or invalid credentials are an ErrUnauthenticated.
	Identify(ctx context.Context, c authn.Connection, token string) (identity.Identity, error)
}

// DefaultRecheck is the default interval at which the credentials of streams are
// checked again.
const DefaultRecheck = 15 * time.Second

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DefaultFormat == "" {
		o.DefaultFormat = krm.CBOR
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.SlowWatch == 0 {
		o.SlowWatch = DefaultSlowWatch
	}
	o.Limits = o.Limits.withDefaults()
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.Callers == nil {
		o.Callers = authn.New(authn.Options{Insecure: true})
	}
	if o.Impersonate == nil {
		o.Impersonate = func(context.Context, identity.Identity) bool { return false }
	}
	if o.Refused == nil {
		o.Refused = func(context.Context, string, string) {}
	}
	if o.Recheck == 0 {
		o.Recheck = DefaultRecheck
	}
	return o
}

// NewServer makes a server of all services on a backend, and of gRPC's health and reflection
// services. The caller serves and stops it: close Options.Stopping before GracefulStop.
func NewServer(backend Backend, o Options) *grpc.Server {
	o = o.withDefaults()
	limiter := newLimiter(o.Limits, o.Turns)
	limiter.refused = o.Observer.Refused
	edge := &edge{
		callers: o.Callers, impersonate: o.Impersonate, refused: o.Refused, limiter: limiter, log: o.Log, tracer: o.Tracer,
		timeout: o.Timeout, recheck: o.Recheck, maxMessage: o.MaxMessage,
	}
	options := []grpc.ServerOption{
		grpc.Creds(transport{o.Secure}),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.ChainUnaryInterceptor(observeUnary(o.Observer), edge.unary),
		grpc.ChainStreamInterceptor(observeStream(o.Observer), edge.stream),
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.MaxRecvMsgSize(o.MaxMessage),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(maxConcurrentCalls),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		// Existing clients ping at various intervals.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	s := grpc.NewServer(append(options, o.ServerOptions...)...)
	serve := func(service grpc.ServiceDesc, on any) {
		s.RegisterService(withBounds(withRights(service), o.MaxMessage), on)
	}
	serve(tkopb.Logs_ServiceDesc, &logs{backend: backend})
	serve(tkopb.Access_ServiceDesc, &rights{backend: backend})
	serve(tkopb.Rollouts_ServiceDesc, &rollouts{backend: backend, format: o.DefaultFormat})
	serve(tkopb.Why_ServiceDesc, &why{backend: backend})
	serve(tkopb.Past_ServiceDesc, &pastService{backend: backend})
	serve(tkopb.Admin_ServiceDesc, &admin{backend: backend})
	serve(withReads(tkopb.Data_ServiceDesc), &data{
		backend: backend, encoder: encoderOf(backend), format: o.DefaultFormat, stopping: o.Stopping, limiter: limiter, slowWatch: o.SlowWatch, observer: o.Observer,
	})
	healthpb.RegisterHealthServer(s, &health{stopping: o.Stopping})
	reflection.Register(s)
	return s
}
