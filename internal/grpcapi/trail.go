package grpcapi

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// untraced are calls that last as long as there is nothing to do, or are made
// all the time.
var untraced = map[string]bool{
	tkopb.Data_ClaimWork_FullMethodName: true, tkopb.Data_RenewWork_FullMethodName: true, tkopb.Data_FinishWork_FullMethodName: true,
	tkopb.Data_WatchChanges_FullMethodName: true,
}

// begin adds the ID of the request and its trace to the context of a call, and
// the ID to the header of the response. The caller ends the span.
func (e *edge) begin(ctx context.Context, method string, header func(metadata.MD) error) (context.Context, trace.Span) {
	tracer := e.tracer
	if tracer != nil && (untraced[method] || strings.HasPrefix(method, "/grpc.")) {
		tracer = nil
	}
	ctx, span := trail.Begin(ctx, tracer, strings.TrimPrefix(method, "/"), first(ctx, trail.RequestKey), first(ctx, trail.TraceparentKey))
	_ = header(metadata.MD{trail.RequestKey: {trail.Request(ctx)}}) // fails only if the call has ended
	return ctx, span
}

// first returns the first value of a key of the call's metadata, or "".
func first(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func setHeader(ctx context.Context) func(metadata.MD) error {
	return func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
}

// withRequest adds the ID of the request to the details of an error.
func withRequest(ctx context.Context, err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	detailed, detailErr := st.WithDetails(&errdetails.RequestInfo{RequestId: trail.Request(ctx)})
	if detailErr != nil {
		return err
	}
	return detailed.Err()
}

// endSpan ends the span of a call with the code of its error.
func endSpan(span trace.Span, err error) {
	if code := status.Code(err); span.IsRecording() {
		span.SetAttributes(codeAttribute.Int(int(code)))
		if err != nil {
			span.SetStatus(otelcodes.Error, code.String())
		}
	}
	span.End()
}

// codeAttribute is OpenTelemetry's attribute of gRPC's status code.
const codeAttribute = attribute.Key("rpc.grpc.status_code")
