package sibling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// contextKey is the metadata of a call with the values of its context.
const contextKey = "tko-context-bin"

// values are the values of a context that the other side sees as well.
type values struct {
	Author          tko.Author
	Acting          tko.Acting
	Confirmation    int
	PackageRequired bool
	DetailsKept     bool
	CannotConsent   bool
	Caller          identity.Identity
	Request         string // ID
	Traceparent     string
}

func withValues(ctx context.Context) (context.Context, error) {
	v := values{Author: tko.AuthorOf(ctx), PackageRequired: tko.PackageRequired(ctx), DetailsKept: tko.DetailsKept(ctx), Request: trail.Request(ctx), Traceparent: trail.Traceparent(ctx)}
	v.Confirmation, _ = tko.ConfirmationOf(ctx)
	v.Caller, _ = identity.From(ctx)
	v.CannotConsent = !tko.CanConsent(ctx)
	v.Acting, _ = tko.ActingOf(ctx)
	data, err := encoder.Marshal(v)
	if err != nil {
		return nil, err
	}
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(contextKey, string(data))), nil
}

func fromValues(ctx context.Context) (context.Context, error) {
	var v values
	for _, data := range metadata.ValueFromIncomingContext(ctx, contextKey) {
		if err := decoder.Unmarshal([]byte(data), &v); err != nil {
			return nil, err
		}
	}
	ctx = tko.WithAuthor(ctx, v.Author)
	if !v.Caller.IsZero() {
		ctx = identity.With(ctx, v.Caller)
	}
	if v.Acting != (tko.Acting{}) {
		ctx = tko.WithActing(ctx, v.Acting)
	}
	if v.Confirmation > 0 {
		ctx = tko.WithConfirmation(ctx, v.Confirmation)
	}
	if v.CannotConsent {
		ctx = tko.WithoutConsent(ctx)
	}
	if v.PackageRequired {
		ctx = tko.WithPackageRequired(ctx)
	}
	if v.DetailsKept {
		ctx = tko.WithDetailsKept(ctx)
	}
	if v.Request != "" {
		ctx = trail.WithTraceparent(trail.WithRequest(ctx, v.Request), v.Traceparent)
	}
	return ctx, nil
}

// A message is a value or the error at the end.
type message struct {
	Value cbor.RawMessage
	Error *Failure
}

// A Stream carries values in both directions. One goroutine may send while another
// one receives.
type Stream struct {
	stream interface {
		SendMsg(m any) error
		RecvMsg(m any) error
	}
	ctx context.Context //nolint:containedctx // it is the call's
	who string          // the other process, for errors
}

// Send sends a value.
func (s *Stream) Send(value any) error {
	data, err := encoder.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %T: %w", value, err)
	}
	return s.send(message{Value: data})
}

func (s *Stream) send(m message) error {
	data, err := encoder.Marshal(m)
	if err != nil {
		return err
	}
	return s.failed(s.stream.SendMsg(&data))
}

// Receive receives a value. It returns io.EOF at the end, and the error of the
// other side.
func (s *Stream) Receive(value any) error {
	var data []byte
	if err := s.stream.RecvMsg(&data); err != nil {
		return s.failed(err)
	}
	var m message
	if err := decoder.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("decode a message of %s: %w", s.who, err)
	}
	if m.Error != nil {
		return m.Error.Err()
	}
	if value == nil {
		return nil
	}
	if err := decoder.Unmarshal(m.Value, value); err != nil {
		return fmt.Errorf("decode a %T of %s: %w", value, s.who, err)
	}
	return nil
}

// failed explains an error of the connection.
func (s *Stream) failed(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case status.Code(err) == codes.Unavailable, status.Code(err) == codes.Canceled:
		return tko.Errorf(tko.ErrUnavailable, "%s ended before it responded", s.who)
	default:
		return fmt.Errorf("call %s: %w", s.who, err)
	}
}

// A Peer is the other process, as this one calls it. It may be used by many
// goroutines.
type Peer struct {
	name string
	conn *grpc.ClientConn
}

// NewPeer returns the other end of a connection.
func NewPeer(name string, connection net.Conn) (*Peer, error) {
	var once sync.Once
	conn, err := grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(16*window),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithContextDialer(func(context.Context, string) (c net.Conn, err error) {
			err = net.ErrClosed // there is one connection for one process
			once.Do(func() { c, err = connection, nil })
			return c, err
		}))
	if err != nil {
		return nil, err
	}
	return &Peer{name: name, conn: conn}, nil
}

// window is the amount of data of a call in transit, in bytes.
const window = 1 << 20

// Close ends the connection.
func (p *Peer) Close() { _ = p.conn.Close() }

// Open begins a call that carries any number of values. The end of ctx ends it.
// closeSend tells the other side that it won't receive more.
func Open(ctx context.Context, p *Peer, method string) (s *Stream, closeSend func() error, err error) {
	with, err := withValues(ctx)
	if err != nil {
		return nil, nil, err
	}
	stream, err := p.conn.NewStream(with, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/sibling/"+method)
	s = &Stream{stream: stream, ctx: ctx, who: p.name}
	if err != nil {
		return nil, nil, s.failed(err)
	}
	return s, stream.CloseSend, nil
}

// Call calls a method with one value, and decodes the result into out, if that isn't
// nil.
func Call(ctx context.Context, p *Peer, method string, in, out any) error {
	ctx, cancel := context.WithCancel(ctx) // frees the call
	defer cancel()
	s, _, err := Open(ctx, p, method)
	if err != nil {
		return err
	}
	if err := s.Send(in); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	err = s.Receive(out)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s did not respond to %s", p.name, method)
	}
	return err
}

// A Handler serves a call until it returns. Its error is the error of the caller's
// Receive.
type Handler func(ctx context.Context, s *Stream) error

// Unary returns a handler of [Call].
func Unary[In, Out any](do func(ctx context.Context, in In) (Out, error)) Handler {
	return func(ctx context.Context, s *Stream) error {
		var in In
		if err := s.Receive(&in); err != nil {
			return err
		}
		out, err := do(ctx, in)
		if err != nil {
			return err
		}
		return s.Send(out)
	}
}

// An Endpoint holds the methods that the other process may call.
type Endpoint map[string]Handler

// server returns a gRPC server of the methods.
func (e Endpoint) server(who string, tracer trace.Tracer) *grpc.Server {
	return grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(16*window), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			name, _ := grpc.Method(stream.Context())
			ctx, err := fromValues(stream.Context())
			if err != nil {
				return err
			}
			ctx, span := trail.Continue(ctx, tracer, "sibling "+strings.TrimPrefix(name, "/sibling/"))
			defer span.End()
			s := &Stream{stream: stream, ctx: ctx, who: who}
			handler, ok := e[strings.TrimPrefix(name, "/sibling/")]
			if !ok {
				return status.Errorf(codes.Unimplemented, "there is no method %q", name)
			}
			if err := handler(ctx, s); err != nil {
				return s.send(message{Error: NewFailure(err)})
			}
			return nil
		}))
}

// Serve serves the methods on one connection until it ends or the context does. If
// the context has a tracer, calls that are in a trace have spans.
func (e Endpoint) Serve(ctx context.Context, who string, connection net.Conn) error {
	server := e.server(who, trail.TracerOf(ctx)) //nolint:contextcheck // calls have contexts of their own
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	return server.Serve(OneConnection(connection))
}

// OneConnection returns a listener that accepts one connection, which exists
// already. It ends with the connection.
func OneConnection(c net.Conn) net.Listener {
	l := &oneConnection{conns: make(chan net.Conn, 1), closed: make(chan struct{}), address: c.LocalAddr()}
	l.conns <- &closing{Conn: c, closed: l.Close}
	return l
}

type oneConnection struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	address net.Addr
}

type closing struct {
	net.Conn

	closed func() error
}

func (c *closing) Close() error { return errors.Join(c.Conn.Close(), c.closed()) }

// Accept implements net.Listener.
func (l *oneConnection) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *oneConnection) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *oneConnection) Addr() net.Addr { return l.address }
