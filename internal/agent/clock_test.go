package agent_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/agentpb"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A skew is a clock that can be wrong.
type skew struct{ by atomic.Int64 }

func (s *skew) set(by time.Duration) { s.by.Store(int64(by)) }
func (s *skew) now() time.Time       { return time.Now().Add(time.Duration(s.by.Load())) }

// A home is a server that agents call, with clocks that a test sets. It sends no desired state.
type home struct {
	agentpb.UnimplementedAgentsServer

	t         *testing.T
	server    agent.Server // for the agent
	authority *certstest.Authority
	here      skew // clock of the agent
	there     skew // clock of the server
	hold      string
	epoch     atomic.Int64 // of its store
	seen      atomic.Int64 // that an agent said last
	down      atomic.Bool

	mutex             sync.Mutex
	from, until       time.Time // validity of certificates of agents
	connects, renewed int
}

func newHome(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, certstest.New(t, "authority"))
}

func newHomeOf(t *testing.T, authority *certstest.Authority) *home {
	t.Helper()
	h := &home{t: t, authority: authority}
	h.validity(-10*time.Minute, 30*time.Minute)
	cert, key, _ := h.authority.Issue("server", func(c *x509.Certificate) {
		certstest.Localhost(c)
		c.NotBefore, c.NotAfter = time.Now().Add(-10*time.Minute), time.Now().Add(30*time.Minute)
	})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: h.authority.Pool(), ClientAuth: tls.VerifyClientCertIfGiven, Time: h.there.now,
	})))
	agentpb.RegisterAgentsServer(g, h)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); serving.Wait() })
	token := certstest.Write(t, t.TempDir(), certstest.File{Name: "token", Data: []byte("once")})[0]
	h.server = agent.Server{Address: l.Addr().String(), TLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: h.authority.Pool(), Time: h.here.now}, TokenFile: token}
	return h
}

// validity sets between which times certificates that are made from now on are valid.
func (h *home) validity(from, until time.Duration) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.from, h.until = time.Now().Add(from), time.Now().Add(until)
}

func (h *home) counts() (connects, renewed int) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.connects, h.renewed
}

func (h *home) issue(request []byte) (*agentpb.CertificateResponse, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, err
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	der := h.authority.Certify(r.PublicKey, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter, c.URIs = h.from, h.until, []*url.URL{{Scheme: "urn", Opaque: "tko:agent:e"}}
	})
	return &agentpb.CertificateResponse{SiteId: "a/1", Certificates: [][]byte{der}, Epoch: h.epoch.Load()}, nil
}

// Enroll implements the service: the token is valid once.
func (h *home) Enroll(_ context.Context, m *agentpb.EnrollRequest) (*agentpb.CertificateResponse, error) {
	if m.GetToken() != "once" {
		return nil, grpcstatus.Error(codes.PermissionDenied, "the token is not valid")
	}
	return h.issue(m.GetCertificateRequest())
}

// Renew implements the service.
func (h *home) Renew(_ context.Context, m *agentpb.RenewRequest) (*agentpb.CertificateResponse, error) {
	h.mutex.Lock()
	h.renewed++
	h.mutex.Unlock()
	return h.issue(m.GetCertificateRequest())
}

// Connect implements the service.
func (h *home) Connect(stream grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	p, _ := peer.FromContext(stream.Context())
	if secure, ok := p.AuthInfo.(credentials.TLSInfo); !ok || len(secure.State.VerifiedChains) == 0 {
		return grpcstatus.Error(codes.Unauthenticated, "no certificate")
	}
	m, err := stream.Recv()
	if err == nil && h.down.Load() {
		err = errDown
	}
	if err != nil {
		return err
	}
	h.seen.Store(m.GetHello().GetEpoch())
	h.mutex.Lock()
	h.connects++
	h.mutex.Unlock()
	if err := stream.Send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Welcome{Welcome: &agentpb.Welcome{AliveSeconds: 60, ClockUnix: h.there.now().Unix(), Epoch: h.epoch.Load()}}}); err != nil {
		return err
	}
	if h.hold != "" { // also to an agent that refuses it
		if err := stream.Send(&agentpb.ConnectResponse{Message: &agentpb.ConnectResponse_Hold{Hold: &agentpb.Hold{Reason: h.hold}}}); err != nil {
			return err
		}
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// run enrolls the agent and runs it until the test ends. It returns its log.
func (h *home) run() *eventually.Buffer {
	h.t.Helper()
	dir := filepath.Join(h.t.TempDir(), "state")
	if err := agent.Enroll(h.t.Context(), dir, h.server, false); err != nil {
		h.t.Fatal(err)
	}
	h.server.TokenFile = ""
	var log eventually.Buffer
	h.start(dir, &log)
	return &log
}

func (h *home) start(dir string, log io.Writer) { h.startWith(dir, log, agent.RunOptions{}) }

// Greet implements the service.
func (h *home) Greet(_ context.Context, m *agentpb.GreetRequest) (*agentpb.Welcome, error) {
	if h.down.Load() {
		return nil, errDown
	}
	h.seen.Store(m.GetEpoch())
	return &agentpb.Welcome{Epoch: h.epoch.Load()}, nil
}

// startWith runs the agent, with h as its preferred server, until the test ends or stop is called.
func (h *home) startWith(dir string, log io.Writer, o agent.RunOptions) (stop func()) {
	h.t.Helper()
	o.Server = h.server
	a, err := agent.Open(dir, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = a.Run(ctx, agent.Place{Repository: filepath.Join(dir, "site.git")}, o)
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait(); a.Close() })
	h.t.Cleanup(stop)
	return stop
}

func (h *home) says(log *eventually.Buffer, texts ...string) {
	h.t.Helper()
	eventually.True(h.t, "the log has "+strings.Join(texts, ", "), func() bool {
		for _, text := range texts {
			if !strings.Contains(log.String(), text) {
				return false
			}
		}
		return true
	})
}

func (h *home) connected() {
	h.t.Helper()
	eventually.True(h.t, "the agent is connected", func() bool { n, _ := h.counts(); return n > 0 })
}

// An agent that can't connect because a clock is wrong names it, and connects by itself when it is
// right again.
func TestWrongClockIsNamedAndAgentConnectsWhenItIsRight(t *testing.T) {
	t.Parallel()
	ofServer, ofAgent := "is not valid by the clock of this machine: set the clock", "isn't by the clock of the server"
	for name, test := range map[string]struct {
		why         string
		here, there time.Duration
		want        string
	}{
		"agent ahead":   {"the server's certificate seems to be expired", time.Hour, 0, ofServer},
		"agent behind":  {"the server's certificate seems to be of the future", -time.Hour, 0, ofServer},
		"server ahead":  {"the agent's certificate seems to be expired", 0, time.Hour, ofAgent},
		"server behind": {"the agent's certificate seems to be of the future", 0, -time.Hour, ofAgent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			dir := filepath.Join(t.TempDir(), "state")
			if err := agent.Enroll(t.Context(), dir, h.server, false); err != nil {
				t.Fatal(err)
			}
			h.server.TokenFile = ""
			h.here.set(test.here)
			h.there.set(test.there)
			var log eventually.Buffer
			h.start(dir, &log)
			h.says(&log, test.want, "the clock here says "+h.here.now().UTC().Format("2006-01-02T"))
			if n, _ := h.counts(); n != 0 {
				t.Fatalf("the agent is connected: %s", test.why)
			}
			h.here.set(0)
			h.there.set(0)
			h.connected()
		})
	}
}

// Without a certificate, the error names the clock, too, and is one after which the agent calls again.
func TestWrongClockIsNamedWhenAnAgentIsEnrolled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(t.TempDir(), "state")
	h.here.set(time.Hour)
	err := agent.Enroll(t.Context(), dir, h.server, false)
	if !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("it is %v", err)
	}
	h.here.set(0)
	if err := agent.Enroll(t.Context(), dir, h.server, false); err != nil {
		t.Error(err)
	}
}

// The server's clock decides when a certificate is renewed: an agent whose clock is after the end of
// its certificate connects, reports the difference, and renews nothing.
func TestOwnClockOfAnAgentDoesNotRenewItsCertificate(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.here.set(25 * time.Minute) // two thirds of the time are over, by this clock
	log := h.run()
	h.says(log, "the clocks of this machine and of the server differ", "server_ahead=-25m")
	if connects, renewed := h.counts(); connects != 1 || renewed != 0 {
		t.Errorf("the agent has connected %d times, and renewed its certificate %d times", connects, renewed)
	}
}

// A server whose certificates are never valid for longer is not called again and again.
func TestCertificateThatCanNotBecomeNewerIsRenewedOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.validity(-30*time.Minute, 5*time.Minute) // as with an authority that ends
	log := h.run()
	h.says(log, "are not valid for longer")
	if connects, renewed := h.counts(); connects != 1 || renewed != 1 {
		t.Errorf("the agent has connected %d times, and renewed its certificate %d times", connects, renewed)
	}
}
