package tracing_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/tracing"
	"github.com/tko-orchestrator/tko/internal/trail"
)

type grpcReceiver struct {
	collector.UnimplementedTraceServiceServer

	got chan *collector.ExportTraceServiceRequest
}

func (r *grpcReceiver) Export(_ context.Context, m *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.got <- m
	return &collector.ExportTraceServiceResponse{}, nil
}

func names(m *collector.ExportTraceServiceRequest) string {
	var all []string
	for _, r := range m.GetResourceSpans() {
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				all = append(all, a.GetValue().GetStringValue())
			}
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				all = append(all, span.GetName())
			}
		}
	}
	return strings.Join(all, " ")
}

// export records a span and closes the provider.
func export(t *testing.T, o tracing.Options) {
	t.Helper()
	o.Program = "tko-test"
	p, err := tracing.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	_, span := trail.Begin(t.Context(), p.Tracer(), "call", "", "")
	span.End()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// These set the environment, so they aren't parallel.

func TestSpansAreExportedByGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &grpcReceiver{got: make(chan *collector.ExportTraceServiceRequest, 2)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	export(t, tracing.Options{Endpoint: "grpc://" + l.Addr().String(), Sample: 1})
	if got := names(<-r.got); got != "tko-test call" {
		t.Errorf("got the spans %q", got)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_SERVICE_NAME", "fleet")
	export(t, tracing.Options{Sample: 1})
	if got := names(<-r.got); got != "fleet call" {
		t.Errorf("got the spans %q by OpenTelemetry's variables", got)
	}
}

func TestSampleIsThePartOfRequestsThatAreTraced(t *testing.T) {
	got := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m collector.ExportTraceServiceRequest
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(data, &m)
		}
		if err != nil {
			t.Error(err)
		}
		got <- names(&m)
	}))
	defer server.Close()
	p, err := tracing.New(t.Context(), tracing.Options{Program: "tko-test", Endpoint: server.URL, Sample: 0})
	if err != nil {
		t.Fatal(err)
	}
	_, untraced := trail.Begin(t.Context(), p.Tracer(), "untraced", "", "")
	untraced.End()
	_, traced := trail.Begin(t.Context(), p.Tracer(), "traced", "", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	traced.End()
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if spans := <-got; spans != "tko-test traced" {
		t.Errorf("got the spans %q, want only that of the client that traces", spans)
	}
}

func TestTracesAreOffWithoutAReceiver(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
		t.Setenv(name, "")
	}
	off := func(why string) {
		t.Helper()
		if p, err := tracing.New(t.Context(), tracing.Options{Sample: 1}); p != nil || p.Tracer() != nil || err != nil {
			t.Errorf("%s: %v, %v, want no traces", why, p, err)
		}
	}
	off("without variables")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	off("without an exporter")
	t.Setenv("OTEL_TRACES_EXPORTER", "")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	off("disabled")
	t.Setenv("OTEL_SDK_DISABLED", "")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := tracing.New(t.Context(), tracing.Options{}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("an unknown protocol: %v", err)
	}
}

func TestMistypedEndpointsAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"localhost:4317": "grpc", "ftp://x": "scheme", "http://": "host", "http://me:swordfish@x": "OTEL_EXPORTER_OTLP_HEADERS", "%": "URL",
	} {
		if _, err := tracing.ParseEndpoint(text); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if e, err := tracing.ParseEndpoint("https://x:4318"); err != nil || e.URL != "https://x:4318/v1/traces" || e.GRPC {
		t.Errorf("%+v, %v", e, err)
	}
}
