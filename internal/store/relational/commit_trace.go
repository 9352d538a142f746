package relational

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/tko-orchestrator/tko/internal/trail"
)

// traceTransaction begins a span for each traced call of a transaction, and
// returns a function that ends them with the results of the calls.
func traceTransaction(calls []*call) (end func()) {
	var spans []trace.Span
	var of []*call
	for _, c := range calls {
		if _, span := trail.Start(c.caller, "store.transaction"); span.IsRecording() {
			span.SetAttributes(trail.Count.Int(len(calls)))
			spans, of = append(spans, span), append(of, c)
		}
	}
	return func() {
		for i, span := range spans {
			trail.End(span, of[i].err)
		}
	}
}
