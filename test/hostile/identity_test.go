package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // the client's codec of a bomb
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/process/secure"
)

// secureConnect connects to a server over TLS, without credentials.
func secureConnect(t *testing.T, s *secure.Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost:"+s.Port(), grpc.WithTransportCredentials(credentials.NewTLS(s.TLS(t))),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// rawCall sends a request to any path, as gRPC's libraries would not, and returns its
// HTTP status and gRPC status.
func rawCall(t *testing.T, s *secure.Server, path, token string, m proto.Message) (httpStatus, grpcStatus string) {
	t.Helper()
	config := s.TLS(t)
	config.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(patient(t), "tcp", "localhost:"+s.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeLimit)); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", path}, {":authority", "localhost"}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token}} {
		if f[0] == "authorization" && token == "" {
			continue
		}
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	out := bufio.NewWriter(conn)
	framer := http2.NewFramer(out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = out.WriteString(http2.ClientPreface)
	err = errors.Join(err, framer.WriteSettings(), framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
		framer.WriteData(1, true, append(framed, body...)), out.Flush())
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return httpStatus, "closed: " + err.Error()
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				switch field.Name {
				case ":status":
					httpStatus = field.Value
				case "grpc-status":
					grpcStatus = field.Value
				}
			}
			if f.StreamEnded() {
				return httpStatus, grpcStatus
			}
		case *http2.RSTStreamFrame:
			return httpStatus, "reset: " + f.ErrCode.String()
		case *http2.GoAwayFrame:
			return httpStatus, "closed: " + f.ErrCode.String()
		}
	}
}

// TestDisguisedPathsReachNoMethod sends requests whose path is written otherwise than in
// the protocol, as one who may not call the method and as one who may.
func TestDisguisedPathsReachNoMethod(t *testing.T) {
	t.Parallel()
	s := secure.Start(t, []string{"eve"})
	s.Bind(t, &tkopb.Binding{Subject: "token:eve", Role: "viewer"})
	root := s.Dial(t, s.Tokens[secure.Root])
	site := func(id string) *tkopb.Site { return &tkopb.Site{SiteId: id} }
	if httpStatus, grpcStatus := rawCall(t, s, "/tko.Data/registerSite", s.Tokens[secure.Root], site("plain")); httpStatus != "200" || grpcStatus != "0" {
		t.Fatalf("the path of the protocol: %s, %s", httpStatus, grpcStatus)
	}
	if _, grpcStatus := rawCall(t, s, "/tko.Data/registerSite", s.Tokens["eve"], site("disguised")); grpcStatus != "7" {
		t.Errorf("a viewer calls registerSite: status %s, want 7 (permission denied)", grpcStatus)
	}
	for _, path := range []string{
		"tko.Data/registerSite", "//tko.Data/registerSite", "/tko.Data//registerSite", "/tko.Data/registerSite/", "/tko.Data/%72egisterSite", "/tko%2EData/registerSite",
		"/tko.data/registersite", "/TKO.DATA/REGISTERSITE", "/tko.Data/registerSite?x=1", "/tko.Data/registerSite#x", "/./tko.Data/registerSite", "/x/../tko.Data/registerSite",
		"/tko.Data/registerSite\x00", "/tko.Data/ registerSite", "*", "/", "", "/tko.Data", "/tko.Data/", "/tko.Other/registerSite", "/tko.Data/missing", "http://localhost/tko.Data/registerSite",
	} {
		for _, who := range []string{"", "eve", secure.Root} {
			if httpStatus, grpcStatus := rawCall(t, s, path, s.Tokens[who], site("disguised")); grpcStatus == "0" {
				t.Errorf("the path %q as %q: %s, %s, want it refused", path, who, httpStatus, grpcStatus)
			}
		}
	}
	if _, err := root.Site(patient(t), "disguised", 0); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("a disguised request had an effect: %v", err)
	}

	// The list of the methods is public; callers with invalid credentials don't get it.
	stream, err := reflectionpb.NewServerReflectionClient(secureConnect(t, s)).ServerReflectionInfo(withToken(patient(t), "tko_wrong"))
	if err == nil {
		err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection with a wrong token: %v", err)
	}
	logins := 0
	for r, err := range root.Access().Audit(patient(t), &tkopb.ListAudit{Decision: "refuse"}) {
		if err != nil {
			t.Fatal(err)
		}
		if text := string(r.GetText()); strings.Contains(text, `"kind":"login"`) {
			logins++
			if strings.Contains(text, "tko_wrong") || !strings.Contains(text, "127.0.0.1") && !strings.Contains(text, "::1") {
				t.Errorf("the record of a failed login is %s, want its source, and no token", text)
			}
		}
	}
	if logins == 0 {
		t.Error("failed logins are not in the audit log")
	}
}

// TestWebPagesCannotUseTheRightsOfTheirVisitors sends what a browser would send for a
// page of another site, to a server at which every local client has rights.
func TestWebPagesCannotUseTheRightsOfTheirVisitors(t *testing.T) {
	t.Parallel()
	s := secure.Start(t, nil, "--access-anonymous=admin")
	if _, err := s.Dial(t, s.Tokens[secure.Root]).RegisterSite(patient(t), tko.Site{ID: "canary"}); err != nil {
		t.Fatal(err)
	}
	get := func(method, path, host string, headers map[string]string) (int, string, http.Header) {
		t.Helper()
		request, err := http.NewRequestWithContext(patient(t), method, "http://"+s.Web+path, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = s.Web
		if host != "" {
			request.Host = host
		}
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		response, err := s.HTTP(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body), response.Header
	}
	code, body, header := get(http.MethodGet, "/api/site/list", "", nil)
	if code != http.StatusOK || !strings.Contains(body, "canary") {
		t.Fatalf("a local program: %d, %s", code, body)
	}
	for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin"} {
		if header.Get(name) != "" {
			t.Errorf("the response has %s: %q", name, header.Get(name))
		}
	}
	if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers of the response: %v", header)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(s.Web, "["), "]")
	for why, attack := range map[string]struct {
		host    string
		headers map[string]string
	}{
		"another origin":             {headers: map[string]string{"Origin": "https://evil.example.org"}},
		"a page in a sandbox":        {headers: map[string]string{"Origin": "null"}},
		"another port":               {headers: map[string]string{"Origin": "http://localhost:1"}},
		"a script of another site":   {headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}},
		"a frame of another site":    {headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}},
		"a name that was rebound":    {host: "evil.example.org" + port},
		"a name with a trailing dot": {host: "evil.example.org." + port},
		"a name like a host's":       {host: "localhost.evil.example.org" + port},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			if code, body, header := get(method, "/api/site/list", attack.host, attack.headers); code != http.StatusForbidden || strings.Contains(body, "canary") || header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s, %s: %d, %.200s", why, method, code, body)
			}
		}
	}
	// gRPC is not for browsers, whatever they send.
	data := tkopb.NewDataClient(connect(t, s.GRPC))
	if _, err := data.About(patient(t), &emptypb.Empty{}); err != nil {
		t.Fatalf("a local program calls gRPC: %v", err)
	}
	if _, err := data.About(metadata.AppendToOutgoingContext(patient(t), "origin", "http://"+s.Web), &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a web page calls gRPC: %v", err)
	}
}

// A gRPC server without authentication must not decompress what it would refuse, nor
// more than it accepts.
func TestCompressedBombsAreRefused(t *testing.T) {
	t.Parallel()
	s := secure.Start(t, []string{"eve"})
	s.Bind(t, &tkopb.Binding{Subject: "token:eve", Role: "editor"})
	data := tkopb.NewDataClient(secureConnect(t, s))
	size := 400 << 20
	if process.Race() { // compressing takes minutes on a busy machine: just more than the server accepts
		size = 150 << 20
	}
	zeros := &tkopb.Site{SiteId: "bomb", PackageFormat: "yaml", Package: make([]byte, size)}
	_, err := data.RegisterSite(withToken(patient(t), s.Tokens["eve"]), zeros, grpc.UseCompressor("gzip"))
	if code := status.Code(err); code != codes.ResourceExhausted {
		t.Errorf("a bomb: %v, want it refused for its size", err)
	}
	const most = 600 << 20
	limit := int64(most)
	if process.Race() {
		limit *= 8
	}
	if used := memory(t, s.PID); used > limit {
		t.Errorf("the server had %d MiB, want at most %d", used>>20, limit>>20)
	}
	if who, err := s.Dial(t, s.Tokens["eve"]).WhoAmI(patient(t)); err != nil || who.Subject != "token:eve" {
		t.Errorf("afterwards: %+v, %v", who, err)
	}
}

// TestStreamsOfOneIdentityDoNotUseUpThoseOfOthers opens 10,000 streams as one identity, over many
// connections.
func TestStreamsOfOneIdentityDoNotUseUpThoseOfOthers(t *testing.T) {
	t.Parallel()
	const limit, attempts, connections = 500, 10_000, 50
	s := secure.Start(t, []string{"eve", "ada"}, fmt.Sprint("--streams-per-client=", limit))
	for _, name := range []string{"eve", "ada"} {
		s.Bind(t, &tkopb.Binding{Subject: "token:" + name, Role: "viewer"})
	}
	if _, err := s.Dial(t, s.Tokens[secure.Root]).RegisterSite(patient(t), tko.Site{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	ada := s.Dial(t, s.Tokens["ada"]) // connected before: a busy machine may need longer for a connection than it has
	if _, err := ada.Site(patient(t), "s", 0); err != nil {
		t.Fatal(err)
	}
	var opened, refused, other atomic.Int64
	var last atomic.Value
	ctx, cancel := context.WithCancel(patient(t))
	var all, decided sync.WaitGroup
	for range connections {
		data := tkopb.NewDataClient(secureConnect(t, s))
		for range attempts / connections {
			decided.Add(1)
			all.Go(func() {
				once := sync.OnceFunc(decided.Done)
				defer once()
				watch, err := data.WatchChanges(withToken(ctx, s.Tokens["eve"]), &tkopb.WatchChanges{})
				if err == nil {
					_, err = watch.Header() // the server has accepted it, or ended it
				}
				if err == nil {
					if _, err = watch.Recv(); err == nil {
						opened.Add(1)
						once()
						for err == nil {
							_, err = watch.Recv()
						}
						return
					}
				}
				switch {
				case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "--streams-per-client"):
					refused.Add(1)
				case ctx.Err() == nil:
					other.Add(1)
					last.Store(err.Error())
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { decided.Wait(); close(ended) }()
	// Meanwhile, others are served.
	longest, calls := time.Duration(0), 0
	for done := false; !done; calls++ {
		select {
		case <-ended:
			done = true
		default:
		}
		start := time.Now()
		for _, err := range ada.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatalf("another identity lists sites: %v", err)
			}
		}
		longest = max(longest, time.Since(start))
	}
	cancel()
	all.Wait()
	t.Logf("%d opened, %d refused; another identity made %d lists, the longest took %v", opened.Load(), refused.Load(), calls, longest)
	if opened.Load() != limit || refused.Load() != attempts-limit || other.Load() != 0 {
		t.Errorf("%d streams were opened, %d refused, %d failed otherwise (%v): want %d, %d, 0", opened.Load(), refused.Load(), other.Load(), last.Load(), limit, attempts-limit)
	}
	if longest > time.Minute {
		t.Errorf("another identity waited %v for a list", longest)
	}
	eventually.Within(t, timeLimit, "the streams are released", func() error {
		watch, err := tkopb.NewDataClient(secureConnect(t, s)).WatchChanges(withToken(patient(t), s.Tokens["eve"]), &tkopb.WatchChanges{})
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	})
}

// TestPluginTokensAreForTheirWorkOnly takes the token that a plugin gets, as a program that it starts could, and uses
// it for other work, and after its own has ended.
func TestPluginTokensAreForTheirWorkOnly(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	input, goOn := filepath.Join(folder, "input"), filepath.Join(folder, "go")
	s := secure.Start(t, nil, "--retry=1h")
	root := s.Dial(t, s.Tokens[secure.Root])
	ctx := patient(t)
	script := fmt.Sprintf(`cat >%[1]s.new; mv %[1]s.new %[1]s; while [ ! -e %[2]s ]; do sleep 0.1; done; sed -n '/^deploymentPackage:/,$p' %[1]s >/dev/null; echo '{}'; exit 1`, input, goOn)
	if _, err := root.RegisterPlugin(ctx, tko.Plugin{
		Type: tko.PluginPrepare, Name: "p", Executor: "command", Arguments: []string{"/bin/sh", "-c", script},
		Triggers: []krm.GVK{{Group: "example.org", Version: "v1", Kind: "Thing"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RegisterTemplate(ctx, tko.Template{ID: "t", Package: parse(t, "{apiVersion: example.org/v1, kind: Thing, metadata: {name: a}}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RegisterTemplate(ctx, tko.Template{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	other, err := root.CreateDeployment(ctx, tko.NewDeployment{Template: "other"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := root.CreateDeployment(ctx, tko.NewDeployment{Template: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var token string
	eventually.Within(t, timeLimit, "the plugin runs", func() error {
		data, err := os.ReadFile(input)
		token = tokenOf(string(data))
		return err
	})
	if token == "" {
		t.Fatal("the plugin's input has no token")
	}
	plugin := s.Dial(t, token)
	if who, err := plugin.WhoAmI(ctx); err != nil || who.Subject != "tko:plugin:prepare/p" {
		t.Errorf("the plugin is %+v, %v", who, err)
	}
	if _, err := plugin.Template(ctx, "t", 0); err != nil {
		t.Errorf("the plugin reads a template: %v", err)
	}
	if _, err := plugin.CreateDeployment(ctx, tko.NewDeployment{Parent: own, Template: "other"}); err != nil {
		t.Errorf("the plugin makes a child of its deployment: %v", err)
	}
	attacks := map[string]func(c *client.Client) error{
		"modify another deployment": func(c *client.Client) error { _, err := c.StartModification(ctx, other); return err },
		"commit another deployment": func(c *client.Client) error {
			_, err := c.CommitDeployment(ctx, tko.DeploymentCommit{ID: other, Revision: 1, Package: parse(t, keptPackage)})
			return err
		},
		"delete another deployment": func(c *client.Client) error { _, err := c.DeleteDeployment(ctx, other); return err },
		"make a deployment":         func(c *client.Client) error { _, err := c.CreateDeployment(ctx, tko.NewDeployment{}); return err },
		"make a child of another": func(c *client.Client) error {
			_, err := c.CreateDeployment(ctx, tko.NewDeployment{Parent: other})
			return err
		},
		"approve its deployment": func(c *client.Client) error { _, err := c.ApproveDeployment(ctx, own); return err },
		"register a site":        func(c *client.Client) error { _, err := c.RegisterSite(ctx, tko.Site{ID: "evil"}); return err },
		"register a template":    func(c *client.Client) error { _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t"}); return err },
		"register a plugin": func(c *client.Client) error {
			_, err := c.RegisterPlugin(ctx, tko.Plugin{Type: "prepare", Name: "evil", Executor: "command", Arguments: []string{"/bin/sh"}})
			return err
		},
		"claim work": func(c *client.Client) error {
			_, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute})
			return err
		},
		"claim the work of sites": func(c *client.Client) error {
			_, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 1, Lease: time.Minute})
			return err
		},
		"bind itself": func(c *client.Client) error {
			_, err := c.Access().Bind(ctx, &tkopb.Binding{Subject: "tko:plugin:prepare/p", Role: "admin"})
			return err
		},
		"read the audit log": func(c *client.Client) error {
			for _, err := range c.Access().Audit(ctx, &tkopb.ListAudit{}) {
				return err
			}
			return nil
		},
	}
	for name, attack := range attacks {
		if err := attack(plugin); !errors.Is(err, tko.ErrDenied) && !errors.Is(err, tko.ErrNotFound) {
			t.Errorf("while it runs, the plugin can %s: %v", name, err)
		}
	}
	if forged := s.Dial(t, token[:len(token)-4]+"AAAA"); !errors.Is(errorOf(forged.WhoAmI(ctx)), tko.ErrUnauthenticated) {
		t.Errorf("a forged token: %v", errorOf(forged.WhoAmI(ctx)))
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually.Within(t, timeLimit, "the token ends with the work", func() error {
		if _, err := plugin.WhoAmI(ctx); !errors.Is(err, tko.ErrUnauthenticated) {
			return fmt.Errorf("a call with it: %w", err)
		}
		return nil
	})
	for name, attack := range attacks {
		if err := attack(plugin); !errors.Is(err, tko.ErrUnauthenticated) {
			t.Errorf("after its end, the plugin's token still permits to %s: %v", name, err)
		}
	}
	if _, err := plugin.CreateDeployment(ctx, tko.NewDeployment{Parent: own, Template: "other"}); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("after its end, the plugin's token still changes its deployment: %v", err)
	}
}

// Plugins that validate run for no work item: their tokens end with their runs, and only read.
func TestTokensOfValidatePluginsOnlyRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	input, goOn := filepath.Join(folder, "input"), filepath.Join(folder, "go")
	s := secure.Start(t, nil)
	root, ctx := s.Dial(t, s.Tokens[secure.Root]), patient(t)
	script := fmt.Sprintf(`cat >%[1]s.new; mv %[1]s.new %[1]s; while [ ! -e %[2]s ]; do sleep 0.1; done; echo '{}'`, input, goOn)
	if _, err := root.RegisterSite(ctx, tko.Site{ID: "canary"}); err != nil {
		t.Fatal(err)
	}
	if _, err := root.RegisterPlugin(ctx, tko.Plugin{
		Type: tko.PluginValidate, Name: "v", Executor: "command", Arguments: []string{"/bin/sh", "-c", script},
		Triggers: []krm.GVK{{Group: "example.org", Version: "v1", Kind: "Thing"}},
	}); err != nil {
		t.Fatal(err)
	}
	registered := make(chan error, 1)
	go func() {
		_, err := root.RegisterTemplate(ctx, tko.Template{ID: "t", Package: krm.Package{{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}})
		registered <- err
	}()
	var token string
	eventually.Within(t, timeLimit, "the plugin runs", func() error {
		data, err := os.ReadFile(input)
		token = tokenOf(string(data))
		return err
	})
	if token == "" {
		t.Fatal("the plugin's input has no token")
	}
	plugin := s.Dial(t, token)
	if who, err := plugin.WhoAmI(ctx); err != nil || who.Subject != "tko:plugin:validate/v" {
		t.Errorf("the plugin is %+v, %v", who, err)
	}
	if _, err := plugin.Site(ctx, "canary", 0); err != nil {
		t.Errorf("the plugin reads a site: %v", err)
	}
	if _, err := plugin.RegisterSite(ctx, tko.Site{ID: "evil"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("the plugin registers a site: %v", err)
	}
	if _, err := plugin.CreateDeployment(ctx, tko.NewDeployment{}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("the plugin makes a deployment: %v", err)
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-registered; err != nil {
		t.Fatalf("register the template that the plugin validates: %v", err)
	}
	if _, err := plugin.WhoAmI(ctx); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("the token after the run: %v", err)
	}
}

// tokenOf returns the token in the input of a plugin.
func tokenOf(input string) string {
	for line := range strings.Lines(input) {
		if value, ok := strings.CutPrefix(line, "grpcToken: "); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

func errorOf[T any](_ T, err error) error { return err }
