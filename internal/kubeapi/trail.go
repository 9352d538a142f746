package kubeapi

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	requestaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tko-orchestrator/tko/internal/trail"
)

// withRequests gives each request of an API the ID that Kubernetes' audit log and
// the response's header Audit-ID have, and a span, unless it is a watch. The
// client may send its trace as the header traceparent.
func withRequests(api http.Handler, tracer trace.Tracer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := requestaudit.AuditIDFrom(r.Context())
		name, of := "Kubernetes "+r.Method, tracer
		info, ok := request.RequestInfoFrom(r.Context())
		if ok && info.IsResourceRequest {
			name = "Kubernetes " + info.Verb + " " + info.Resource
		}
		if !ok || !info.IsResourceRequest || info.Verb == "watch" {
			of = nil
		}
		// The library has a span of its own, which is recorded nowhere.
		ctx, span := trail.Begin(trace.ContextWithSpanContext(r.Context(), trace.SpanContext{}), of, name, string(id), r.Header.Get(trail.TraceparentKey))
		defer span.End()
		if span.IsRecording() && info != nil {
			span.SetAttributes(attribute.String("k8s.resource", info.Resource), attribute.String("k8s.name", info.Name), attribute.String("k8s.verb", info.Verb))
		}
		api.ServeHTTP(w, r.WithContext(ctx))
	})
}
