package grpcapi_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The catalog is the backend in production, and the client has the same methods.
var (
	_ grpcapi.Backend     = (*catalog.Service)(nil)
	_ grpcapi.DataBackend = (*client.Client)(nil)
)

// fake is a backend with the few methods that a test needs.
type fake struct {
	grpcapi.Backend

	about     func(context.Context) (tko.About, error)
	register  func(context.Context, tko.Template) (int64, error)
	template  func(context.Context, tko.TemplateID, int64) (tko.Template, error)
	templates func(context.Context, tko.TemplateSelect, tko.ListOptions) iter.Seq2[tko.Template, error]
	claim     func(context.Context, tko.ClaimWork) ([]tko.WorkItem, error)
	watch     func(context.Context, int64, ...tko.Kind) iter.Seq2[tko.Change, error]
	purge     func(context.Context)
	start     func(context.Context, tko.DeploymentID) (tko.Modification, error)
}

func (f *fake) About(ctx context.Context) (tko.About, error) { return f.about(ctx) }

func (f *fake) RegisterTemplate(ctx context.Context, t tko.Template) (int64, error) {
	return f.register(ctx, t)
}

func (f *fake) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	return f.template(ctx, id, revision)
}

func (f *fake) Templates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	return f.templates(ctx, s, o)
}

func (f *fake) PurgeTemplates(ctx context.Context, s tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	if f.purge != nil {
		f.purge(ctx)
	}
	if !dryRun || len(s.IDs) != 1 {
		return tko.Deleted{}, nil
	}
	return tko.Deleted{Count: 5, Descendants: 2}, nil
}

func (f *fake) ClaimWork(ctx context.Context, c tko.ClaimWork) ([]tko.WorkItem, error) {
	return f.claim(ctx, c)
}

func (f *fake) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return f.watch(ctx, after, kinds...)
}

// BeforeNewest has positions that are a hundred apart.
func (f *fake) BeforeNewest(_ context.Context, n int) (int64, error) {
	return 10_000 - 100*int64(n), nil
}

func (f *fake) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	return f.start(ctx, id)
}

func (f *fake) ApproveDeployment(context.Context, tko.DeploymentID) (int, error) { return 1, nil }

func (f *fake) ApproveDeployments(_ context.Context, s tko.DeploymentSelect, dryRun bool) (int, error) {
	if dryRun {
		return 7, nil
	}
	return 3, nil
}

// serve serves a backend in memory.
func serve(t testing.TB, backend grpcapi.Backend, o grpcapi.Options) (*grpc.ClientConn, *grpc.Server) {
	t.Helper()
	server := grpcapi.NewServer(backend, o)
	listener := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn, server
}

func TestFaultsDontLeak(t *testing.T) {
	t.Parallel()
	secret := "SELECT password FROM user"
	tests := map[string]struct {
		about func(context.Context) (tko.About, error)
		code  codes.Code
	}{
		"an error of no kind": {func(context.Context) (tko.About, error) { return tko.About{}, errors.New(secret) }, codes.Internal},
		"a panic":             {func(context.Context) (tko.About, error) { panic(secret) }, codes.Internal},
		"a store that is away": {func(context.Context) (tko.About, error) {
			return tko.About{}, fmt.Errorf("%s: %w", secret, &net.OpError{Op: "dial", Err: errors.New("refused")})
		}, codes.Unavailable},
		"status of another server": {func(context.Context) (tko.About, error) {
			return tko.About{}, fmt.Errorf("elsewhere: %w", status.Error(codes.NotFound, secret))
		}, codes.Internal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logged := &eventually.Buffer{}
			conn, _ := serve(t, &fake{about: test.about}, grpcapi.Options{Log: slog.New(slog.NewJSONHandler(logged, nil))})
			_, err := tkopb.NewDataClient(conn).About(t.Context(), &emptypb.Empty{})
			if status.Code(err) != test.code || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("got %v", err)
			}
			_, id, _ := strings.Cut(status.Convert(err).Message(), "(id ")
			id = strings.TrimSuffix(id, ")")
			if len(id) < 16 || !strings.Contains(logged.String(), id) || !strings.Contains(logged.String(), secret) {
				t.Errorf("the log doesn't have the cause of %q:\n%s", id, logged)
			}
			if _, err := tkopb.NewDataClient(conn).PurgeTemplates(t.Context(), &tkopb.SelectTemplates{}); err != nil {
				t.Errorf("the server doesn't go on: %v", err)
			}
		})
	}
}

func TestFaultsInStreamsDontLeak(t *testing.T) {
	t.Parallel()
	conn, _ := serve(t, &fake{
		templates: func(context.Context, tko.TemplateSelect, tko.ListOptions) iter.Seq2[tko.Template, error] {
			return func(yield func(tko.Template, error) bool) {
				if yield(tko.Template{ID: "a"}, nil) {
					panic("no")
				}
			}
		},
		watch: func(context.Context, int64, ...tko.Kind) iter.Seq2[tko.Change, error] {
			return func(yield func(tko.Change, error) bool) { yield(tko.Change{}, tko.Errorf(tko.ErrGone, "long ago")) }
		},
	}, grpcapi.Options{})
	list, err := tkopb.NewDataClient(conn).ListTemplates(t.Context(), &tkopb.ListTemplates{})
	if err != nil {
		t.Fatal(err)
	}
	if row, err := list.Recv(); err != nil || row.GetTemplateId() != "a" {
		t.Errorf("the row before the panic: %v, %v", row, err)
	}
	if _, err := list.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	watch, err := tkopb.NewDataClient(conn).WatchChanges(t.Context(), &tkopb.WatchChanges{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.OutOfRange {
		t.Errorf("got %v", err)
	}
	watch, err = tkopb.NewDataClient(conn).WatchChanges(t.Context(), &tkopb.WatchChanges{Kinds: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("unknown kind: %v", err)
	}
}

func TestAuthorComesFromTheMetadata(t *testing.T) {
	t.Parallel()
	var got tko.Author
	conn, _ := serve(t, &fake{about: func(ctx context.Context) (tko.About, error) {
		got = tko.AuthorOf(ctx)
		return tko.About{}, nil
	}}, grpcapi.Options{})
	tests := map[string]struct {
		pairs []string
		want  tko.Author
		code  codes.Code
	}{
		"no author":         {nil, tko.Author{Who: "anonymous@bufconn"}, codes.OK},
		"author and reason": {[]string{"tko-who", "ann", "tko-why", "because"}, tko.Author{Who: "ann", Why: "because"}, codes.OK},
		"only why":          {[]string{"tko-why", "because"}, tko.Author{Who: "anonymous@bufconn", Why: "because"}, codes.OK},
		"escaped":           {[]string{"tko-who", "Zo%C3%AB"}, tko.Author{Who: "Zoë"}, codes.OK},
		"too long":          {[]string{"tko-who", strings.Repeat("x", 2000)}, tko.Author{}, codes.InvalidArgument},
		"not UTF-8":         {[]string{"tko-why", "%FF"}, tko.Author{}, codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got = tko.Author{}
			ctx := metadata.AppendToOutgoingContext(t.Context(), test.pairs...)
			_, err := tkopb.NewDataClient(conn).About(ctx, &emptypb.Empty{})
			if status.Code(err) != test.code || got != test.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestCallsGetADeadlineExceptDeletions(t *testing.T) {
	t.Parallel()
	var left time.Duration
	remember := func(ctx context.Context) {
		deadline, ok := ctx.Deadline()
		left = -1
		if ok {
			left = time.Until(deadline)
		}
	}
	conn, _ := serve(t, &fake{
		about: func(ctx context.Context) (tko.About, error) { remember(ctx); return tko.About{}, nil },
		claim: func(ctx context.Context, _ tko.ClaimWork) ([]tko.WorkItem, error) { remember(ctx); return nil, nil },
		purge: remember,
		register: func(ctx context.Context, _ tko.Template) (int64, error) {
			<-ctx.Done()
			return 0, errors.New("interrupted (57014)") // as a database may say it
		},
	}, grpcapi.Options{Timeout: time.Hour})
	data := tkopb.NewDataClient(conn)
	between := func(why string, low, high time.Duration) {
		t.Helper()
		if left < low || left > high {
			t.Errorf("%s: %s left, want %s to %s", why, left, low, high)
		}
	}
	_, _ = data.About(t.Context(), &emptypb.Empty{})
	between("a call without deadline has the default", 59*time.Minute, time.Hour)
	_, _ = data.ClaimWork(t.Context(), &tkopb.ClaimWork{Wait: durationpb.New(time.Hour)})
	between("the time to wait comes on top", 119*time.Minute, 2*time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	_, _ = data.About(ctx, &emptypb.Empty{})
	between("a client's own deadline counts", 2*time.Hour, 3*time.Hour)

	_, _ = data.PurgeTemplates(t.Context(), &tkopb.SelectTemplates{})
	between("a purge takes as long as it takes", -1, -1)
	_, _ = data.PurgeTemplates(ctx, &tkopb.SelectTemplates{})
	between("a client's own deadline counts for a purge, too", 2*time.Hour, 3*time.Hour)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := data.RegisterTemplate(short, &tkopb.Template{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestPackagesAreSentInThePreferredFormat(t *testing.T) {
	t.Parallel()
	calls := 0
	p := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
	conn, _ := serve(t, &fake{
		about: func(context.Context) (tko.About, error) { return tko.About{Version: "1"}, nil },
		template: func(context.Context, tko.TemplateID, int64) (tko.Template, error) {
			calls++
			return tko.Template{ID: "a", Package: p}, nil
		},
		templates: func(_ context.Context, _ tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
			calls++
			return func(yield func(tko.Template, error) bool) {
				row := tko.Template{ID: "a"}
				if o.Packages {
					row.Package = p
				}
				yield(row, nil)
			}
		},
		start: func(context.Context, tko.DeploymentID) (tko.Modification, error) {
			calls++
			return tko.Modification{Token: "x", Package: p}, nil
		},
	}, grpcapi.Options{DefaultFormat: krm.YAML})
	data := tkopb.NewDataClient(conn)

	about, err := data.About(t.Context(), &emptypb.Empty{})
	if err != nil || about.GetDefaultPackageFormat() != "yaml" {
		t.Errorf("about returns %v, %v", about, err)
	}
	for preferred, want := range map[string]string{"": "yaml", "yaml": "yaml", "cbor": "cbor"} {
		got, err := data.GetTemplate(t.Context(), &tkopb.GetTemplate{PreferredPackageFormat: preferred})
		if err != nil || got.GetPackageFormat() != want {
			t.Errorf("preferred %q: got %q, %v", preferred, got.GetPackageFormat(), err)
		}
		back, err := krm.Decode(krm.Format(want), got.GetPackage(), krm.Limits{})
		if diff := cmp.Diff(p, back); err != nil || diff != "" {
			t.Errorf("preferred %q: %v (-want +got):\n%s", preferred, err, diff)
		}
	}
	for _, with := range []bool{false, true} {
		stream, err := data.ListTemplates(t.Context(), &tkopb.ListTemplates{WithPackages: with, PreferredPackageFormat: "cbor"})
		if err != nil {
			t.Fatal(err)
		}
		row, err := stream.Recv()
		if err != nil || (len(row.GetPackage()) > 0) != with || (row.GetPackageFormat() == "cbor") != with {
			t.Errorf("with packages %t: got %v, %v", with, row, err)
		}
	}
	calls = 0
	_, err = data.GetTemplate(t.Context(), &tkopb.GetTemplate{PreferredPackageFormat: "json"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("get: %v", err)
	}
	_, err = data.StartDeploymentModification(t.Context(), &tkopb.StartDeploymentModification{PreferredPackageFormat: "json"})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("start: %v", err)
	}
	stream, err := data.ListTemplates(t.Context(), &tkopb.ListTemplates{PreferredPackageFormat: "json"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("list: %v", err)
	}
	if calls != 0 {
		t.Errorf("the backend was called %d times for formats that don't exist", calls)
	}
}

func TestCompressedRequestsAreAccepted(t *testing.T) {
	t.Parallel()
	f := &fake{about: func(context.Context) (tko.About, error) { return tko.About{InstanceName: "zipped"}, nil }}
	connection, _ := serve(t, f, grpcapi.Options{})
	about, err := tkopb.NewDataClient(connection).About(t.Context(), &emptypb.Empty{}, grpc.UseCompressor("gzip"))
	if err != nil || about.GetInstanceName() != "zipped" {
		t.Errorf("got %v, %v for a compressed message", about, err)
	}
}

func TestResponsesReportTheResult(t *testing.T) {
	t.Parallel()
	var registered tko.Template
	conn, _ := serve(t, &fake{register: func(_ context.Context, tmpl tko.Template) (int64, error) {
		registered = tmpl
		return 4, nil
	}}, grpcapi.Options{})
	data := tkopb.NewDataClient(conn)

	response, err := data.RegisterTemplate(t.Context(), &tkopb.Template{TemplateId: "a", DeploymentIds: []string{"x"}, Stamp: &tkopb.Stamp{Uid: "forged"}})
	if err != nil || !response.GetRegistered() || response.GetRevision() != 4 {
		t.Errorf("registration returns %v, %v; want revision 4", response, err)
	}
	if diff := cmp.Diff(tko.Template{ID: "a"}, registered); diff != "" {
		t.Errorf("want read-only fields to be ignored (-want +got):\n%s", diff)
	}
	deleted, err := data.PurgeTemplates(t.Context(), &tkopb.SelectTemplates{TemplateIdPatterns: []string{"a"}, DryRun: true})
	if err != nil || !deleted.GetDeleted() || deleted.GetCount() != 5 || deleted.GetDescendants() != 2 {
		t.Errorf("purge returns %v, %v", deleted, err)
	}
	deleted, err = data.PurgeTemplates(t.Context(), &tkopb.SelectTemplates{})
	if err != nil || !deleted.GetDeleted() || deleted.GetNotDeletedReason() != "" {
		t.Errorf("a purge that matches nothing returns %v, %v", deleted, err)
	}
}

func TestApprovalNeedsAnIDOrASelection(t *testing.T) {
	t.Parallel()
	conn, _ := serve(t, &fake{}, grpcapi.Options{})
	tests := map[string]struct {
		why  string
		m    *tkopb.ApproveDeployments
		want uint64
		code codes.Code
	}{
		"one":     {"by ID", &tkopb.ApproveDeployments{DeploymentId: "d"}, 1, codes.OK},
		"some":    {"by selection", &tkopb.ApproveDeployments{Select: &tkopb.SelectDeployments{}}, 3, codes.OK},
		"dry run": {"only counted", &tkopb.ApproveDeployments{Select: &tkopb.SelectDeployments{DryRun: true}}, 7, codes.OK},
		"nothing": {"an empty message must not approve everything", &tkopb.ApproveDeployments{}, 0, codes.InvalidArgument},
		"both":    {"which of them?", &tkopb.ApproveDeployments{DeploymentId: "d", Select: &tkopb.SelectDeployments{DryRun: true}}, 0, codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tkopb.NewDataClient(conn).ApproveDeployments(t.Context(), test.m)
			if got.GetApproved() != test.want || status.Code(err) != test.code {
				t.Errorf("%s: got %v, %v", test.why, got, err)
			}
		})
	}
}

// Calls that never end by themselves don't delay a graceful stop.
func TestStoppingServerEndsWatchesAndWaits(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 3)
	stopping := make(chan struct{})
	conn, server := serve(t, &fake{
		watch: func(ctx context.Context, _ int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
			return func(yield func(tko.Change, error) bool) {
				begun <- struct{}{}
				<-ctx.Done()
				yield(tko.Change{}, ctx.Err())
			}
		},
		claim: func(ctx context.Context, _ tko.ClaimWork) ([]tko.WorkItem, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}, grpcapi.Options{Stopping: stopping})

	health, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "tko.Data"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := health.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health is %v, %v", m, err)
	}
	errs := make(chan error, 2)
	go func() {
		stream, err := tkopb.NewDataClient(conn).WatchChanges(t.Context(), &tkopb.WatchChanges{})
		if err == nil {
			_, err = stream.Recv()
		}
		errs <- err
	}()
	go func() {
		_, err := tkopb.NewDataClient(conn).ClaimWork(t.Context(), &tkopb.ClaimWork{Wait: durationpb.New(time.Hour)})
		errs <- err
	}()
	<-begun
	<-begun
	close(stopping)
	if m, err := health.Recv(); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health of a stopping server is %v, %v", m, err)
	}
	for range 2 {
		if err := <-errs; status.Code(err) != codes.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}
	}
	stopped := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(eventually.Limit):
		t.Error("the server has not stopped")
	}
}

func TestHealthIsServingUntilTheServerStops(t *testing.T) {
	t.Parallel()
	conn, _ := serve(t, &fake{}, grpcapi.Options{})
	health := healthpb.NewHealthClient(conn)
	for _, service := range []string{"", "tko.Data"} {
		if m, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}); err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, m, err)
		}
	}
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown service: %v", err)
	}
	if m, err := health.List(t.Context(), &healthpb.HealthListRequest{}); err != nil || len(m.GetStatuses()) != 2 {
		t.Errorf("list: %v, %v", m, err)
	}
}

// The server ends a list when the client cancels its call.
func TestServerClosesAListThatTheClientStopsReading(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	conn, _ := serve(t, &fake{
		templates: func(ctx context.Context, _ tko.TemplateSelect, _ tko.ListOptions) iter.Seq2[tko.Template, error] {
			return func(yield func(tko.Template, error) bool) {
				defer close(ended)
				for ctx.Err() == nil && yield(tko.Template{ID: "a"}, nil) {
					continue
				}
			}
		},
	}, grpcapi.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := tkopb.NewDataClient(conn).ListTemplates(ctx, &tkopb.ListTemplates{})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(eventually.Limit):
		t.Error("the list has not ended")
	}
}

// A client can set the size of the errors that it accepts; other clients get errors that all clients accept.
func TestErrorsFitTheSizeThatClientsAccept(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 100_000)
	conn, _ := serve(t, &fake{about: func(context.Context) (tko.About, error) {
		return tko.About{}, tko.Errorf(tko.ErrInvalid, "%s", text)
	}}, grpcapi.Options{})
	tests := map[string]struct {
		size  string
		whole bool
	}{"unsaid": {"", false}, "large": {"1000000", true}, "absurd": {"9999999999", true}, "small": {"1", false}, "no number": {"x", false}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if test.size != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, wire.ErrorSizeKey, test.size)
			}
			_, err := tkopb.NewDataClient(conn).About(ctx, &emptypb.Empty{})
			message := status.Convert(err).Message()
			if status.Code(err) != codes.InvalidArgument || (message == text) != test.whole || !test.whole && len(message) > wire.DefaultErrorSize {
				t.Errorf("got %d bytes, %s", len(message), status.Code(err))
			}
		})
	}
}
