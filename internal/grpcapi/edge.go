package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// maxErrorSize is the maximum size of errors that clients may request, in
// bytes.
const maxErrorSize = 1 << 20

// An edge intercepts all calls: it adds the caller and the author to the context,
// limits streams, and converts errors and panics to statuses.
type edge struct {
	callers     Authenticator
	impersonate func(context.Context, identity.Identity) bool
	refused     func(ctx context.Context, source, detail string)
	limiter     *limiter
	log         *slog.Logger
	tracer      trace.Tracer // or nil
	timeout     time.Duration
	recheck     time.Duration
	maxMessage  int // bytes
}

func (e *edge) unary(ctx context.Context, m any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
	ctx, span := e.begin(ctx, info.FullMethod, setHeader(ctx))
	ctx, cancel := e.withDeadline(ctx, info.FullMethod, m)
	defer cancel() // after done, which evaluates the context's error
	start := time.Now()
	defer func() { e.done(ctx, span, info.FullMethod, start, recover(), &err) }()

	authored, caller, err := e.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	authored, taken, err := e.limiter.begin(authored, caller, info.FullMethod)
	if err != nil {
		return nil, err
	}
	defer taken.Done()
	authored, warnings := tko.CollectWarnings(authored)
	if response, err = handle(withConfirmation(authored, m), m); err == nil {
		if list := warnings(); len(list) > 0 {
			_ = grpc.SetTrailer(ctx, metadata.MD{wire.WarningKey: list}) // fails only if the call has ended
		}
	}
	return response, err
}

// withConfirmation adds to the context the count that a message confirms, and
// that a registration must not replace a package by an empty one.
//
// Clients of the original protocol send neither: they can't confirm.
func withConfirmation(ctx context.Context, m any) context.Context {
	confirmed := metadata.ValueFromIncomingContext(ctx, wire.ConfirmKey)
	if len(confirmed) > 0 {
		if n, err := strconv.Atoi(confirmed[0]); err == nil && n > 0 {
			ctx = tko.WithConfirmation(ctx, min(n, math.MaxInt32))
		}
	} else if i, _ := identity.From(ctx); i.Role() == "" {
		ctx = tko.WithoutConsent(ctx)
	}
	if c, ok := m.(interface{ GetConfirm() uint64 }); ok && c.GetConfirm() > 0 {
		ctx = tko.WithConfirmation(ctx, int(min(c.GetConfirm(), math.MaxInt32)))
	}
	if k, ok := m.(interface{ GetKeepPackage() bool }); ok && k.GetKeepPackage() {
		ctx = tko.WithPackageRequired(ctx)
	}
	if d, ok := m.(interface{ GetDetails() *tkopb.Details }); ok && d.GetDetails() == nil { // of a client that doesn't know them
		ctx = tko.WithDetailsKept(ctx)
	}
	return ctx
}

// withDeadline adds a deadline to a call that has none, except for lasting methods, such as
// deletions and approvals: they end when they are complete or the client cancels.
func (e *edge) withDeadline(ctx context.Context, method string, m any) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	if table()[method].Lasting {
		return context.WithCancel(ctx)
	}
	timeout := e.timeout
	if claim, ok := m.(*tkopb.ClaimWork); ok {
		timeout += min(max(claim.GetWait().AsDuration(), 0), 24*time.Hour)
	}
	return context.WithTimeout(ctx, timeout)
}

func (e *edge) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	start := time.Now()
	ctx, span := e.begin(s.Context(), info.FullMethod, s.SetHeader)
	defer func() { e.done(ctx, span, info.FullMethod, start, recover(), &err) }()

	authored, caller, err := e.admit(ctx, info.FullMethod)
	if err != nil {
		return err
	}
	authored, end := e.whileValid(authored, info.FullMethod, caller)
	defer end(nil)
	slot, err := e.limiter.take(ctx, caller)
	if err != nil {
		return err
	}
	if slot != nil {
		defer slot.drop()
		authored = context.WithValue(authored, slotKey{}, slot)
	}
	authored, taken, err := e.limiter.begin(authored, caller, info.FullMethod)
	if err != nil {
		return err
	}
	defer taken.Done()
	err = handle(server, &authoredStream{ServerStream: s, ctx: authored, method: info.FullMethod, maxMessage: e.maxMessage})
	if ended := context.Cause(authored); err != nil && errors.Is(ended, tko.ErrUnauthenticated) && ctx.Err() == nil {
		err = ended
	}
	return err
}

type authoredStream struct {
	grpc.ServerStream

	ctx        context.Context //nolint:containedctx // a gRPC stream carries its context
	method     string
	maxMessage int
}

// RecvMsg limits requests as [withBounds] does.
func (s *authoredStream) RecvMsg(m any) error {
	return decodeBounded(s.ctx, s.method, s.ServerStream.RecvMsg, m, s.maxMessage)
}

// SendMsg lets others have the turn of the call while its client doesn't read.
func (s *authoredStream) SendMsg(m any) error {
	return turn.Send(s.ctx, func() error { return s.ServerStream.SendMsg(m) })
}

func (s *authoredStream) Context() context.Context { return s.ctx }

// done ends a call: it converts its error or panic to the client's error, and
// logs it.
func (e *edge) done(ctx context.Context, span trace.Span, method string, start time.Time, panicked any, err *error) {
	if panicked != nil {
		e.log.ErrorContext(ctx, "call panicked", "method", method, "id", trail.Request(ctx), "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
		*err = internal(trail.Request(ctx))
	} else if *err != nil {
		*err = e.status(ctx, method, *err)
	}
	endSpan(span, *err)
	*err = withRequest(ctx, *err)
	if e.log.Enabled(ctx, slog.LevelDebug) {
		e.log.DebugContext(ctx, "call", "method", method, "code", status.Code(*err), "peer", peerHost(ctx), "took", time.Since(start))
	}
}

func (e *edge) status(ctx context.Context, method string, err error) error {
	if st := wire.Status(err, errorSize(ctx)); st != nil {
		if cause := innermost(err); st.Code() == codes.Unavailable && cause.Error() != err.Error() {
			e.log.WarnContext(ctx, "call failed for now", "method", method, "err", err, "cause", cause)
		}
		return st.Err()
	}
	if own, ok := err.(interface{ GRPCStatus() *status.Status }); ok { // gRPC's own, not one that the backend wrapped
		return own.GRPCStatus().Err()
	}
	if ctx.Err() != nil { // a store may wrap it in an error of its own
		return status.FromContextError(ctx.Err()).Err()
	}
	id := trail.Request(ctx)
	e.log.ErrorContext(ctx, "call failed", "method", method, "id", id, "err", err)
	if unreachable := net.Error(nil); errors.As(err, &unreachable) {
		return status.Errorf(codes.Unavailable, "the server can't reach its store, see the server's log (id %s)", id)
	}
	return internal(id)
}

// innermost returns the cause of an error.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func internal(id string) error {
	return status.Errorf(codes.Internal, "internal error, see the server's log (id %s)", id)
}

// errorSize returns the size of errors that the client accepts, in bytes.
func errorSize(ctx context.Context) int {
	for _, text := range metadata.ValueFromIncomingContext(ctx, wire.ErrorSizeKey) {
		if size, err := strconv.Atoi(text); err == nil && size > wire.DefaultErrorSize {
			return min(size, maxErrorSize)
		}
	}
	return wire.DefaultErrorSize
}

// rowSize returns the size of rows, without their packages, that the client
// accepts, in bytes.
func rowSize(ctx context.Context) int {
	for _, text := range metadata.ValueFromIncomingContext(ctx, wire.RowSizeKey) {
		if size, err := strconv.Atoi(text); err == nil && size > wire.DefaultRowSize {
			return size
		}
	}
	return wire.DefaultRowSize
}

// admit authenticates a call, and limits the calls of each client.
func (e *edge) admit(ctx context.Context, method string) (context.Context, identity.Identity, error) {
	if err := e.limiter.admit(ctx); err != nil {
		return ctx, identity.Identity{}, err
	}
	authored, caller, err := e.authenticate(ctx, method)
	if err != nil {
		e.limiter.failed(ctx)
		return ctx, caller, err
	}
	return authored, caller, e.limiter.allow(ctx, caller)
}

// authenticate adds the caller of a method to the context, and the author of
// changes, with the reason for them.
//
// The author is the caller. What the caller says about itself (tko-who) is the
// author only if the caller is anonymous, one of our own controllers, or may
// impersonate; else it is kept as claimed.
func (e *edge) authenticate(ctx context.Context, method string) (context.Context, identity.Identity, error) {
	claimed, err := authorText(ctx, wire.WhoKey)
	if err != nil {
		return ctx, identity.Identity{}, err
	}
	why, err := authorText(ctx, wire.WhyKey)
	if err != nil {
		return ctx, identity.Identity{}, err
	}
	i, err := e.identify(ctx)
	if err != nil && strings.HasPrefix(method, healthMethods) {
		i, err = identity.Anonymous(callerOf(ctx).connection.From), nil
	}
	if err != nil {
		e.log.InfoContext(ctx, "call refused: not authenticated", "method", method, "peer", peerHost(ctx), "err", err)
		if !errors.Is(err, tko.ErrUnavailable) && ctx.Err() == nil {
			e.refused(ctx, callerOf(ctx).connection.From, err.Error())
		}
		return ctx, identity.Identity{}, err
	}
	i.Claimed = claimed
	ctx = identity.With(ctx, i)
	if named := first(ctx, wire.ActingKey); named != "" {
		acting, err := wire.Acting(named)
		if err != nil {
			return ctx, identity.Identity{}, err
		}
		if acting.Claim, err = authorText(ctx, wire.ClaimKey); err != nil {
			return ctx, identity.Identity{}, err
		}
		ctx = tko.WithActing(ctx, acting)
	}
	who := i.Subject
	switch {
	case i.IsAnonymous() && claimed == "":
		who = "anonymous@" + peerHost(ctx)
	case i.IsAnonymous(), claimed != "" && (i.Role() != "" || e.impersonate(ctx, i)):
		who = claimed
	}
	return tko.WithAuthor(ctx, tko.Author{Who: who, Why: why}), i, nil
}

// healthMethods is the prefix of the methods of gRPC's health service, which
// probes without credentials call.
const healthMethods = "/grpc.health.v1.Health/"

// identify returns the caller of a call. Calls from web pages are refused: this
// API is not for browsers, which send the credentials of their users.
func (e *edge) identify(ctx context.Context) (identity.Identity, error) {
	if origin := metadata.ValueFromIncomingContext(ctx, "origin"); len(origin) > 0 {
		return identity.Identity{}, tko.Errorf(tko.ErrDenied, "calls from web pages (%.100q) are not accepted", origin[0])
	}
	headers := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(headers) > 1 {
		return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "there are %d authorization headers: send one", len(headers))
	}
	token := ""
	if len(headers) == 1 {
		var err error
		if token, err = authn.Bearer(headers[0]); err != nil {
			return identity.Identity{}, err
		}
	}
	return callerOf(ctx).identify(ctx, e.callers, token)
}

// whileValid returns a context that ends when the caller's credentials expire, or
// are no longer accepted: a stream may live longer than they do.
func (e *edge) whileValid(ctx context.Context, method string, i identity.Identity) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if i.IsAnonymous() || i.Role() != "" && i.Expires.IsZero() {
		return ctx, cancel
	}
	var timer *time.Timer
	check := func() {
		now, err := e.identify(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil && now.Subject == i.Subject, errors.Is(err, tko.ErrUnavailable):
			timer.Reset(e.untilCheck(now))
		default:
			if err == nil {
				err = tko.Errorf(tko.ErrUnauthenticated, "the credentials are now those of %q", now.Subject)
			}
			e.log.InfoContext(ctx, "stream ended: no longer authenticated", "method", method, "subject", i.Subject, "err", err)
			cancel(tko.Errorf(tko.ErrUnauthenticated, "the credentials are no longer valid: %w", err))
		}
	}
	timer = time.AfterFunc(time.Hour, check)
	timer.Reset(e.untilCheck(i)) // check uses timer
	context.AfterFunc(ctx, func() { timer.Stop() })
	return ctx, cancel
}

// untilCheck returns when the credentials of a stream are to be checked again.
func (e *edge) untilCheck(i identity.Identity) time.Duration {
	if i.Expires.IsZero() {
		return e.recheck
	}
	return min(max(time.Until(i.Expires), time.Millisecond), e.recheck)
}

func authorText(ctx context.Context, key string) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) == 0 {
		return "", nil
	}
	return wire.AuthorText(key, values[0])
}

// peerHost returns the address of the client, without the port, which is
// arbitrary.
func peerHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "unknown"
	}
	address := p.Addr.String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
