package trail_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/trail"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// recorder returns a tracer, and the spans that it has recorded.
func recorder(t *testing.T) (trace.Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	return provider.Tracer("test"), exporter.GetSpans
}

func TestMalformedRequestIDsAreReplaced(t *testing.T) {
	t.Parallel()
	for id, kept := range map[string]bool{
		"ticket-4711": true, "29fb49e8-21cd-4753-b721-857bb774282d": true, "a/b:c@d=e+f.g_h": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "two words": false, "a\nlevel=ERROR": false, "ü": false, "a\x00": false, "a\"b": false,
	} {
		ctx, _ := trail.Begin(t.Context(), nil, "call", id, "")
		if got := trail.Request(ctx); (got == id) != kept || !trail.IsRequest(got) {
			t.Errorf("%.20q became %q, want it kept: %v", id, got, kept)
		}
	}
	if first := trail.NewRequest(); first == trail.NewRequest() {
		t.Error("two requests have one ID")
	}
}

func TestWorkContinuesTheTraceOfItsCause(t *testing.T) {
	t.Parallel()
	tracer, spans := recorder(t)
	ctx, call := trail.Begin(t.Context(), tracer, "call", "r-1", traceparent)
	cause := trail.Cause(ctx)
	if !trail.IsCause(cause) {
		t.Errorf("the cause %q is malformed", cause)
	}
	call.End()
	work, span := trail.Resume(trail.WithTracer(context.Background(), tracer), "work", cause)
	_, inner := trail.Start(work, "step")
	trail.End(inner, tko.Errorf(tko.ErrInvalid, "the password is swordfish"))
	span.End()
	if trail.Request(work) != "r-1" || trail.TraceID(work) != traceID {
		t.Errorf("the work is of request %q and trace %q", trail.Request(work), trail.TraceID(work))
	}
	all := spans()
	if len(all) != 3 {
		t.Fatalf("%d spans, want 3", len(all))
	}
	for _, s := range all {
		if s.SpanContext.TraceID().String() != traceID {
			t.Errorf("the span %s is not in the trace", s.Name)
		}
	}
	if got := all[1].Status.Description; got != "invalid" {
		t.Errorf("the span's error is %q, want its kind only", got)
	}
	if all[2].Parent.SpanID() != all[0].SpanContext.SpanID() {
		t.Error("the work is not below the call")
	}
}

func TestOldCausesAreLinkedSoThatTracesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tracer, spans := recorder(t)
		ctx, call := trail.Begin(t.Context(), tracer, "call", "r-1", traceparent)
		cause := trail.Cause(ctx)
		call.End()
		time.Sleep(time.Hour)
		work, span := trail.Resume(trail.WithTracer(context.Background(), tracer), "work", cause)
		span.End()
		if trail.Request(work) != "r-1" || trail.TraceID(work) == traceID {
			t.Errorf("the work is of request %q and trace %q", trail.Request(work), trail.TraceID(work))
		}
		if links := spans()[1].Links; len(links) != 1 || links[0].SpanContext.TraceID().String() != traceID {
			t.Errorf("the links are %v", links)
		}
	})
}

func TestMalformedCausesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, cause := range []string{"", " ", "two\nlines", "r-1 " + strings.Repeat("x", 1000), "r-1 \x1b[31m", "ü x y"} {
		ctx, _ := trail.Resume(t.Context(), "work", cause)
		if !trail.IsRequest(trail.Request(ctx)) || trail.TraceID(ctx) != "" {
			t.Errorf("%.20q: request %q, trace %q", cause, trail.Request(ctx), trail.TraceID(ctx))
		}
		if trail.WithCause(t.Context(), cause) != t.Context() {
			t.Errorf("%.20q was adopted", cause)
		}
	}
	ctx, _ := trail.Resume(t.Context(), "work", "r-1 00-nonsense-00-01 12")
	if trail.Request(ctx) != "r-1" || trail.TraceID(ctx) != "" {
		t.Errorf("a malformed trace: request %q, trace %q", trail.Request(ctx), trail.TraceID(ctx))
	}
}

// What isn't traced costs no allocation.
func TestSpansCostNothingWithoutATracer(t *testing.T) {
	ctx := trail.WithRequest(t.Context(), "r-1")
	failed := errors.New("failed")
	n := testing.AllocsPerRun(100, func() {
		ctx, span := trail.Start(ctx, "step")
		_ = trail.Cause(ctx)
		_ = trail.Traceparent(ctx)
		trail.End(span, failed)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
