package webapi

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tko-orchestrator/tko/internal/trail"
)

// WithRequests gives each request of a handler an ID, which the response has as
// the header Tko-Request-Id, and a span. The client may send the ID, and its
// trace as the header traceparent. A nil tracer traces nothing.
func WithRequests(handler http.Handler, tracer trace.Tracer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := trail.Begin(r.Context(), tracer, "HTTP "+r.Method, r.Header.Get(trail.RequestKey), r.Header.Get(trail.TraceparentKey))
		defer span.End()
		w.Header().Set(trail.RequestKey, trail.Request(ctx))
		if !span.IsRecording() {
			handler.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		recorder := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		handler.ServeHTTP(recorder, r.WithContext(ctx))
		span.SetAttributes(attribute.String("url.path", r.URL.Path), attribute.Int("http.response.status_code", recorder.status))
		if recorder.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(recorder.status))
		}
	})
}
