// Package secure starts servers that serve over TLS, know the identities of their clients,
// and enforce rights.
package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/process"
)

// Root is the name of the static token of the first administrator of a [Server].
const Root = "root"

// A Server serves over TLS, knows the identities of its clients, and enforces
// rights.
type Server struct {
	*process.Server

	Authority *certstest.Authority
	CA        string            // file of the authority, of the server and of clients
	Store     string            // as for --store
	Tokens    map[string]string // by name; token:NAME is the subject
}

// Start starts a server with static tokens of names, and of [Root]. Further flags
// follow.
func Start(t testing.TB, names []string, args ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	s := &Server{Authority: certstest.New(t, "authority of tests"), Store: "sqlite:" + filepath.Join(dir, "tko.db"), Tokens: map[string]string{}}
	cert, key, _ := s.Authority.Issue("tko-server", certstest.Localhost)
	paths := certstest.Write(t, dir, certstest.File{Name: "ca.crt", Data: s.Authority.PEM()}, certstest.File{Name: "server.crt", Data: cert}, certstest.File{Name: "server.key", Data: key})
	s.CA = paths[0]
	file := filepath.Join(dir, "tokens")
	for _, name := range append([]string{Root}, names...) {
		token, err := authn.AddToken(file, authn.Entry{Name: name, Expires: time.Now().Add(time.Hour)}, false)
		if err != nil {
			t.Fatal(err)
		}
		s.Tokens[name] = token
	}
	initialise := exec.Command(process.Build(t, "tko-server"), "access", "init", "--store="+s.Store, "--admin=token:"+Root)
	if out, err := initialise.CombinedOutput(); err != nil {
		t.Fatalf("make the first administrator: %v\n%s", err, out)
	}
	s.Server = process.StartServer(t, append([]string{
		"--store=" + s.Store, "--tls-cert=" + paths[1], "--tls-key=" + paths[2], "--tls-client-ca=" + s.CA, "--token-file=" + file, "--access=enforce",
	}, args...)...)
	return s
}

// Port returns the port of the gRPC API.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.GRPC) // as the server wrote it
	return port
}

// Dial connects as the holder of a token, over TLS.
func (s *Server) Dial(t testing.TB, token string) *client.Client {
	t.Helper()
	o := client.Options{Address: "localhost:" + s.Port(), TLS: &client.TLS{CA: s.CA}, Author: tko.Author{Why: t.Name()}}
	if token != "" {
		o.Token = func(context.Context) (string, error) { return token, nil }
	}
	c, err := client.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Bind gives a role to a subject.
func (s *Server) Bind(t testing.TB, b *tkopb.Binding) {
	t.Helper()
	if _, err := s.Dial(t, s.Tokens[Root]).Access().Bind(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// TLS returns the configuration of a client that trusts the server.
func (s *Server) TLS(t testing.TB) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Authority.PEM())
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}
}

// HTTP returns a client of the HTTP API.
func (s *Server) HTTP(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: s.TLS(t)}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Command returns the command tko for the server, in an environment of its own
// (folder) without other credentials than those of env.
func (s *Server) Command(t testing.TB, folder string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), process.Build(t, "tko"), args...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TKO_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(append(cmd.Env, "TKO_CONFIG="+filepath.Join(folder, "config.yaml"), "HOME="+folder), env...)
	return cmd
}
