package tracing

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/version"
)

// Options configure the traces of a program.
type Options struct {
	Program  string  // name of the program; OTEL_SERVICE_NAME replaces it
	Endpoint string  // see [ParseEndpoint]; OpenTelemetry's variables if empty
	Sample   float64 // part of the requests that are traced, unless OTEL_TRACES_SAMPLER is set and this is 1
}

// An Endpoint is a receiver of spans.
type Endpoint struct {
	URL  string // with the scheme http or https
	GRPC bool
}

// ParseEndpoint reads the URL of a receiver: grpc:// and grpcs:// for OTLP over
// gRPC, http:// and https:// for OTLP over HTTP. "" is the zero Endpoint.
func ParseEndpoint(text string) (Endpoint, error) {
	if text == "" {
		return Endpoint{}, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return Endpoint{}, tko.Errorf(tko.ErrInvalid, "it is not a URL: use grpc://HOST:4317 or http://HOST:4318/v1/traces")
	case u.User != nil:
		return Endpoint{}, tko.Errorf(tko.ErrInvalid, "it contains credentials: give them as headers in the variable OTEL_EXPORTER_OTLP_HEADERS")
	case u.Host == "":
		return Endpoint{}, tko.Errorf(tko.ErrInvalid, "it has no host: use grpc://HOST:4317 or http://HOST:4318/v1/traces")
	}
	e := Endpoint{GRPC: strings.HasPrefix(u.Scheme, "grpc")}
	switch u.Scheme {
	case "grpc", "http":
		u.Scheme = "http"
	case "grpcs", "https":
		u.Scheme = "https"
	default:
		return Endpoint{}, tko.Errorf(tko.ErrInvalid, "the scheme %.20q is unknown: use grpc, grpcs, http or https", u.Scheme)
	}
	if !e.GRPC && (u.Path == "" || u.Path == "/") {
		u.Path = "/v1/traces"
	}
	e.URL = u.String()
	return e, nil
}

// A Provider exports spans. A nil Provider exports none.
type Provider struct{ provider *sdk.TracerProvider }

// flushLimit bounds the export of the last spans.
const flushLimit = 5 * time.Second

// New returns a provider, or nil if neither the options nor OpenTelemetry's
// variables name a receiver. The receiver need not be reachable: the number of
// spans that wait for it is bounded, and further ones are dropped.
func New(ctx context.Context, o Options) (*Provider, error) {
	endpoint, err := ParseEndpoint(o.Endpoint)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the endpoint of traces: %w", err)
	}
	if endpoint.URL == "" {
		named := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
		if named == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
			return nil, nil
		}
	}
	client, err := newClient(endpoint)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	// No attributes of the process: arguments and environment may hold secrets.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", o.Program), attribute.String("service.version", version.String()),
	), resource.WithFromEnv())
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	options := []sdk.TracerProviderOption{sdk.WithBatcher(exporter), sdk.WithResource(about)}
	if o.Sample != 1 || os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		options = append(options, sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Sample))))
	}
	return &Provider{sdk.NewTracerProvider(options...)}, nil
}

// newClient returns a client of the receiver; of the one that OpenTelemetry's
// variables name if the endpoint is zero.
func newClient(endpoint Endpoint) (otlptrace.Client, error) {
	if endpoint.URL == "" {
		protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
		if protocol == "" {
			protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
		}
		switch protocol {
		case "grpc":
			return otlptracegrpc.NewClient(), nil
		case "", "http/protobuf":
			return otlptracehttp.NewClient(), nil
		default:
			return nil, tko.Errorf(tko.ErrInvalid, "OTEL_EXPORTER_OTLP_PROTOCOL is %.40q: use grpc or http/protobuf", protocol)
		}
	}
	if endpoint.GRPC {
		return otlptracegrpc.NewClient(otlptracegrpc.WithEndpointURL(endpoint.URL)), nil
	}
	return otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(endpoint.URL)), nil
}

// Tracer returns the tracer of requests; nil if p is.
func (p *Provider) Tracer() trace.Tracer {
	if p == nil {
		return nil
	}
	return p.provider.Tracer(trail.Scope, trace.WithInstrumentationVersion(version.String()))
}

// Close exports the spans that have ended, for a limited time.
func (p *Provider) Close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	if err := p.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("export the last traces: %w", err)
	}
	return nil
}
