package trail

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The names of a request's ID and trace in gRPC metadata and, without regard to
// case, in HTTP headers.
const (
	RequestKey     = "tko-request-id"
	TraceparentKey = "traceparent"
)

// maxRequest is the maximum length of a request ID, in bytes.
const maxRequest = 64

type requestKey struct{}

// WithRequest returns a context of the request with an ID.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// Request returns the ID of the request that the context is for, "" if there is
// none.
func Request(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// IsRequest reports whether a text is well-formed as a request ID: 1 to 64
// letters, digits and the characters ._:/+=@-.
func IsRequest(id string) bool {
	if id == "" || len(id) > maxRequest {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("._:/+=@-", c) < 0 {
			return false
		}
	}
	return true
}

// requests numbers the requests of this process, which a random prefix
// distinguishes from those of other processes.
var (
	requests      atomic.Uint64
	requestPrefix = strings.ToLower(rand.Text()[:14]) + "-"
)

// NewRequest returns a request ID.
func NewRequest() string {
	var b [40]byte
	return string(strconv.AppendUint(append(b[:0], requestPrefix...), requests.Add(1), 36))
}

// Begin returns a context of a request that a transport received. The client's
// ID is used if it is well-formed; otherwise the request gets a new one. The
// span is that of the request: the transport ends it. Without a tracer, no span
// is recorded, and the client's trace is only passed on.
func Begin(ctx context.Context, tracer trace.Tracer, name, id, traceparent string) (context.Context, trace.Span) {
	if !IsRequest(id) {
		id = NewRequest()
	}
	ctx = WithTraceparent(WithRequest(ctx, id), traceparent)
	if tracer == nil {
		return ctx, unrecorded
	}
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		span.SetAttributes(requestAttribute.String(id))
	}
	return ctx, span
}

// format is W3C's.
var format propagation.TraceContext

// maxTraceparent is longer than a traceparent of the versions that exist.
const maxTraceparent = 128

// WithTraceparent returns a context in a trace: one that a client began. An
// invalid text is ignored.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" || len(traceparent) > maxTraceparent {
		return ctx
	}
	return format.Extract(ctx, propagation.MapCarrier{TraceparentKey: traceparent})
}

// Traceparent returns the trace and the span of a context, in W3C's format; ""
// if there are none.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	format.Inject(ctx, carrier)
	return carrier[TraceparentKey]
}

// TraceID returns the ID of the trace of a context; "" if there is none.
func TraceID(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.HasTraceID() {
		return ""
	}
	return s.TraceID().String()
}

// causeAge is how long work that a request caused belongs to the request's
// trace. Later, it has a trace of its own that links to it: otherwise a trace
// would never end.
const causeAge = 15 * time.Minute

// maxCause is the maximum length of a cause.
const maxCause = maxRequest + maxTraceparent + 32

// Cause returns the request and the trace of a context as a text, which
// [Resume] reads; "" if there are none. The text is stored with the work that
// the request causes.
func Cause(ctx context.Context) string {
	id := Request(ctx)
	if id == "" {
		return ""
	}
	traceparent := Traceparent(ctx)
	if traceparent == "" {
		return id
	}
	return id + " " + traceparent + " " + strconv.FormatInt(time.Now().Unix(), 10)
}

// IsCause reports whether a text is short enough, and made of the characters of
// a cause.
func IsCause(cause string) bool {
	if len(cause) > maxCause {
		return false
	}
	id, rest, _ := strings.Cut(cause, " ")
	return cause == "" || IsRequest(id) && !strings.ContainsFunc(rest, func(c rune) bool { return c < ' ' || c > '~' })
}

// Resume returns a context of the request that caused work, and begins a span
// for the work. The caller ends it. Without a cause, the work gets a request ID
// of its own. Spans are recorded if ctx has a tracer: see [WithTracer].
func Resume(ctx context.Context, name, cause string) (context.Context, trace.Span) {
	id, rest, _ := strings.Cut(cause, " ")
	if !IsCause(cause) || id == "" {
		id, rest = NewRequest(), ""
	}
	traceparent, at, _ := strings.Cut(rest, " ")
	ctx = WithRequest(ctx, id)
	tracer, _ := ctx.Value(tracerKey{}).(trace.Tracer)
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)) > causeAge {
		if before := trace.SpanContextFromContext(WithTraceparent(context.Background(), traceparent)); before.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: before}))
		}
	} else {
		ctx = WithTraceparent(ctx, traceparent)
	}
	if tracer == nil {
		return ctx, unrecorded
	}
	ctx, span := tracer.Start(ctx, name, options...)
	if span.IsRecording() {
		span.SetAttributes(requestAttribute.String(id))
	}
	return ctx, span
}

// Continue begins a span of a call of another process, if the call is in a trace
// that is recorded. The caller ends it.
func Continue(ctx context.Context, tracer trace.Tracer, name string) (context.Context, trace.Span) {
	if tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, unrecorded
	}
	return tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
}

type tracerKey struct{}

// WithTracer returns a context whose work is traced. A nil tracer traces
// nothing.
func WithTracer(ctx context.Context, tracer trace.Tracer) context.Context {
	if tracer == nil {
		return ctx
	}
	return context.WithValue(ctx, tracerKey{}, tracer)
}

// TracerOf returns the tracer of a context, nil if there is none.
func TracerOf(ctx context.Context) trace.Tracer {
	tracer, _ := ctx.Value(tracerKey{}).(trace.Tracer)
	return tracer
}

// WithCause returns a context of the request and the trace of a cause; ctx
// itself without one, or with one that is malformed.
func WithCause(ctx context.Context, cause string) context.Context {
	id, rest, _ := strings.Cut(cause, " ")
	if !IsCause(cause) || id == "" {
		return ctx
	}
	traceparent, _, _ := strings.Cut(rest, " ")
	return WithTraceparent(WithRequest(ctx, id), traceparent)
}

// WithNewTrace returns a context of a new trace, which servers record whatever
// part of the requests they trace.
func WithNewTrace(ctx context.Context) context.Context {
	var c trace.SpanContextConfig
	_, _ = rand.Read(c.TraceID[:]) // never fails
	_, _ = rand.Read(c.SpanID[:])
	c.TraceFlags = trace.FlagsSampled
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
}
