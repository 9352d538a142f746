// Package tracing exports the spans of requests by OTLP, to a receiver that the
// flags or OpenTelemetry's environment variables name. Without one there are no
// spans. What a span contains is decided by the callers of package trail.
package tracing
