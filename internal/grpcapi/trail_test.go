package grpcapi_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func connect(t testing.TB, backend grpcapi.Backend, o grpcapi.Options) *grpc.ClientConn {
	t.Helper()
	conn, _ := serve(t, backend, o)
	return conn
}

func TestCallsHaveRequestIDsInResponsesErrorsAuditAndWork(t *testing.T) {
	t.Parallel()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	service := catalog.New(store, validNothing{}, catalog.Options{Audit: true})
	conn := connect(t, service, grpcapi.Options{})
	data := tkopb.NewDataClient(conn)
	with := metadata.AppendToOutgoingContext(t.Context(), "tko-request-id", "ticket-4711")

	var header metadata.MD
	created, err := data.CreateDeployment(with, &tkopb.CreateDeployment{}, grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	if got := header.Get("tko-request-id"); len(got) != 1 || got[0] != "ticket-4711" {
		t.Errorf("the response has the request IDs %q", got)
	}
	work, err := data.ClaimWork(t.Context(), &tkopb.ClaimWork{Queue: tko.QueuePrepare, MaxItems: 1, Lease: durationpb.New(time.Minute)})
	if err != nil || len(work.GetItems()) != 1 || work.GetItems()[0].GetCause() != "ticket-4711" {
		t.Errorf("%v, %v: the work does not name the request that caused it", work, err)
	}
	found := false
	for stored, err := range service.AuditRecords(t.Context(), audit.Select{Request: "ticket-4711"}) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := stored.Record()
		found = found || err == nil && r.ID == created.GetDeploymentId() && r.Request == "ticket-4711"
	}
	if !found {
		t.Error("the audit log does not name the request")
	}

	_, err = data.GetTemplate(metadata.AppendToOutgoingContext(t.Context(), "tko-request-id", "two words"), &tkopb.GetTemplate{TemplateId: "nothing"}, grpc.Header(&header))
	id := ""
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RequestInfo); ok {
			id = info.GetRequestId()
		}
	}
	if id == "" || id == "two words" || header.Get("tko-request-id")[0] != id {
		t.Errorf("the error has the request ID %q, and the response %q: want the same new one", id, header.Get("tko-request-id"))
	}

	c, err := client.New(conn, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := client.WithRequestID(t.Context(), "ticket-4712")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Template(ctx, "nothing", 0); client.RequestID(err) != "ticket-4712" || !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("the client's error is %v of request %q", err, client.RequestID(err))
	}
	for _, err := range c.Templates(ctx, tko.TemplateSelect{IDs: []string{"["}}, tko.ListOptions{}) {
		if err == nil || client.RequestID(err) != "ticket-4712" {
			t.Errorf("the error of a list is %v of request %q", err, client.RequestID(err))
		}
	}
	if _, err := client.WithRequestID(t.Context(), "two words"); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a malformed request ID: %v", err)
	}
}

func TestInternalErrorsNameTheRequestThatTheLogHas(t *testing.T) {
	t.Parallel()
	out := &eventually.Buffer{}
	log, err := logging.New(logging.Options{Format: logging.JSON, To: out})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	service := catalog.New(store, validNothing{}, catalog.Options{})
	data := tkopb.NewDataClient(connect(t, service, grpcapi.Options{Log: log.Logger}))
	_ = store.Close()
	_, err = data.About(metadata.AppendToOutgoingContext(t.Context(), "tko-request-id", "ticket-4711"), &emptypb.Empty{})
	if err == nil || !strings.Contains(out.String(), `"request_id":"ticket-4711"`) {
		t.Errorf("%v: the log does not name the request: %s", err, out)
	}
}

func TestCallsAreSpansInTheClientsTrace(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	conn := connect(t, catalog.New(store, validNothing{}, catalog.Options{}), grpcapi.Options{Tracer: provider.Tracer("test")})
	c, err := client.New(conn, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := provider.Tracer("client").Start(context.Background(), "client")
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t"}); err != nil {
		t.Fatal(err)
	}
	span.End()
	if _, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	var names []string
	eventually.True(t, "the span of the call", func() bool {
		names = nil
		for _, s := range exporter.GetSpans() {
			if s.SpanContext.TraceID() != span.SpanContext().TraceID() {
				t.Errorf("the span %s is in another trace", s.Name)
			}
			names = append(names, s.Name)
		}
		return strings.Contains(strings.Join(names, " "), "tko.Data/registerTemplate")
	})
	for _, want := range []string{"catalog.commit", "store.commit", "store.transaction"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("no span %q: %q", want, names)
		}
	}
	if strings.Contains(strings.Join(names, " "), "claimWork") {
		t.Errorf("a call that waits for work has a span: %q", names)
	}
}

func TestLogLevelsChangeOverTheAPIAndAreAudited(t *testing.T) {
	t.Parallel()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var out bytes.Buffer
	log, err := logging.New(logging.Options{Format: logging.JSON, To: &out})
	if err != nil {
		t.Fatal(err)
	}
	service := catalog.New(store, validNothing{}, catalog.Options{Audit: true, LogLevels: log.Levels})
	c, err := client.New(connect(t, service, grpcapi.Options{}), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	levels, err := c.SetLogLevels(t.Context(), "store=debug", time.Hour)
	if err != nil || len(levels) != len(logging.Components()) {
		t.Fatalf("%v, %v", levels, err)
	}
	for _, l := range levels {
		if (l.Level == "debug") != (l.Component == "store") || l.Until.IsZero() != (l.Component != "store") {
			t.Errorf("%+v", l)
		}
	}
	if !log.With("component", logging.Store).Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the log has the old level")
	}
	if _, err := c.SetLogLevels(t.Context(), "stor=debug", 0); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "store, tosca") {
		t.Errorf("a mistyped component: %v, want the list of components", err)
	}
	records := 0
	for stored, err := range service.AuditRecords(t.Context(), audit.Select{Kind: "log"}) {
		r, _ := stored.Record()
		if err != nil || r.Detail != "store=debug" {
			t.Errorf("%+v, %v", r, err)
		}
		records++
	}
	if records != 1 {
		t.Errorf("%d audit records, want 1", records)
	}
}

// BenchmarkGet measures what request IDs and traces cost a get call.
func BenchmarkGet(b *testing.B) {
	tracers := map[string]*sdk.TracerProvider{
		"traces off": nil, "not sampled": sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())),
		"sampled": sdk.NewTracerProvider(sdk.WithBatcher(tracetest.NewNoopExporter())),
	}
	for name, provider := range tracers {
		b.Run(name, func(b *testing.B) {
			store, err := sqlite.OpenMemory(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			o := grpcapi.Options{}
			if provider != nil {
				o.Tracer = provider.Tracer("test")
			}
			c, err := client.New(connect(b, catalog.New(store, validNothing{}, catalog.Options{}), o), client.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := c.RegisterTemplate(b.Context(), tko.Template{ID: "t"}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Template(b.Context(), "t", 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
