package trail

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tko-orchestrator/tko"
)

// Scope is the name of the instrumentation in spans.
const Scope = "github.com/tko-orchestrator/tko"

// Attributes of spans. They hold kinds, IDs and counts; never packages, texts of
// errors, or other content, which may contain secrets.
const (
	requestAttribute = attribute.Key("tko.request_id")
	Kind             = attribute.Key("tko.kind")
	ID               = attribute.Key("tko.id")
	Site             = attribute.Key("tko.site")
	Deployment       = attribute.Key("tko.deployment")
	Plugin           = attribute.Key("tko.plugin")
	Target           = attribute.Key("tko.target")
	Outcome          = attribute.Key("tko.outcome")
	Count            = attribute.Key("tko.count")
)

// unrecorded is a span that records nothing.
var unrecorded = trace.SpanFromContext(context.Background())

// Start begins a span below the span of the context. The caller ends it with
// [End]. If that span isn't recorded, neither is this one, at no cost.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, unrecorded
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name)
}

// kinds are the descriptions of errors in spans.
var kinds = []struct {
	kind error
	text string
}{
	{tko.ErrInvalid, "invalid"},
	{tko.ErrNotFound, "not found"},
	{tko.ErrConflict, "conflict"},
	{tko.ErrBusy, "busy"},
	{tko.ErrDenied, "denied"},
	{tko.ErrUnauthenticated, "unauthenticated"},
	{tko.ErrGone, "gone"},
	{tko.ErrUnavailable, "unavailable"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline exceeded"},
}

// End ends a span with the kind of an error. The error's text isn't recorded: it
// may quote what users wrote.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, kindOf(err))
	}
	span.End()
}

func kindOf(err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.text
		}
	}
	return "failed"
}

// Detach returns a context of a new request, without a trace, for work that is
// done for several requests.
func Detach(ctx context.Context) context.Context {
	return WithRequest(trace.ContextWithSpan(ctx, unrecorded), NewRequest())
}
