package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/certs/certstest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A world is a server that echoes, and its authorities.
type world struct {
	*testing.T

	dir     string
	serving *certstest.Authority
	clients *certstest.Authority
	server  *certs.Server
	address string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, dir: t.TempDir(), serving: certstest.New(t, "serving"), clients: certstest.New(t, "clients")}
	cert, key, _ := w.serving.Issue("server", certstest.Localhost)
	w.write("cert", cert)
	w.write("key", key)
	w.write("ca", w.clients.PEM())
	server, err := certs.NewServer(certs.Options{Cert: w.path("cert"), Key: w.path("key"), ClientCA: w.path("ca")})
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	secure := server.Listener(l)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := secure.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name string, data []byte) {
	w.Helper()
	if err := os.WriteFile(w.path(name), data, 0o600); err != nil {
		w.Fatal(err)
	}
}

// config returns the configuration of a client of an authority.
func (w *world) config(authority *certstest.Authority) *tls.Config {
	w.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.serving.PEM())
	c := &tls.Config{RootCAs: roots, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if authority != nil {
		cert, key, _ := authority.Issue("ann", nil)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			w.Fatal(err)
		}
		// Also if the server's list of authorities lacks its own.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

// echo sends a byte over a new connection, and returns the connection.
func (w *world) echo(c *tls.Config) (*tls.Conn, error) {
	conn, err := tls.Dial("tcp", w.address, c)
	if err != nil {
		return nil, err
	}
	w.Cleanup(func() { _ = conn.Close() })
	return conn, ping(conn)
}

func ping(conn net.Conn) error {
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func TestRemovedAuthorityEndsConnectionsAndSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.config(w.clients)
	conn, err := w.echo(client)
	if err != nil {
		t.Fatal(err)
	}
	other := certstest.New(t, "other")
	w.write("ca", other.PEM())
	if err := w.server.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := ping(conn); err == nil {
		t.Error("the connection of a client of the removed authority is still open")
	}
	if again, err := w.echo(client); err == nil {
		t.Errorf("a client of the removed authority connects again; resumed: %t", again.ConnectionState().DidResume)
	}
	if _, err := w.echo(w.config(other)); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
	if second, err := w.echo(w.config(nil)); err != nil || second.ConnectionState().Version != tls.VersionTLS13 {
		t.Errorf("a client without a certificate: %v", err)
	}
}

func TestRevokedCertificateIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cert, key, revoked := w.clients.Issue("eve", nil)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	w.write("crl", w.clients.Revoke(revoked))
	server, err := certs.NewServer(certs.Options{Cert: w.path("cert"), Key: w.path("key"), ClientCA: w.path("ca"), CRL: w.path("crl")})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Verify([]*x509.Certificate{revoked}); !errors.Is(err, tko.ErrUnauthenticated) {
		t.Errorf("verify: %v", err)
	}
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	client := w.config(nil)
	client.Certificates = []tls.Certificate{pair}
	go func() {
		_ = tls.Client(near, client).HandshakeContext(t.Context())
		_, _ = io.Copy(io.Discard, near) // the server's alert
	}()
	if _, err := server.Handshake(t.Context(), far); err == nil {
		t.Error("a revoked certificate is accepted")
	}
	w.write("crl", certstest.New(t, "clients").Revoke(revoked))
	if err := server.Reload(); !errors.Is(err, tko.ErrInvalid) || server.Problem() == "" {
		t.Errorf("a list that another authority signed: %v", err)
	}
}

func TestOldProtocolVersionsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.config(nil)
	c.MaxVersion = tls.VersionTLS12
	if _, err := w.echo(c); err == nil {
		t.Error("TLS 1.2 is accepted")
	}
}

func TestPlainTextIsForThisMachineOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := ping(conn); err != nil {
		t.Errorf("from this machine: %v", err)
	}
	strict, err := certs.NewServer(certs.Options{Cert: w.path("cert"), Key: w.path("key"), ClientCA: w.path("ca"), ClientAuth: certs.Require})
	if err != nil {
		t.Fatal(err)
	}
	for name, server := range map[string]*certs.Server{"certificates required": strict, "another machine": w.server} {
		near, far := net.Pipe() // has no loopback address
		go func() {
			_, _ = near.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			_, _ = io.Copy(io.Discard, near)
		}()
		if _, err := server.Accept(t.Context(), far); err == nil {
			t.Errorf("%s: plain text is accepted", name)
		}
	}
}

// Certificates are replaced, once by broken files, while clients connect all the time.
func TestReloadUnderLoadLosesNoConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.config(w.clients)
	var made atomic.Int64
	stop := make(chan struct{})
	var loading sync.WaitGroup
	for range 4 {
		loading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := tls.Dial("tcp", w.address, client.Clone())
				if err == nil {
					err = errors.Join(ping(conn), conn.Close())
				}
				if err != nil {
					t.Errorf("a connection failed: %v", err)
					return
				}
				made.Add(1)
			}
		})
	}
	for i := range 10 {
		cert, key, _ := w.serving.Issue("server", certstest.Localhost)
		before := w.server.Expires()
		w.write("cert", []byte("broken"))
		if err := w.server.Reload(); !errors.Is(err, tko.ErrInvalid) || w.server.Problem() == "" || !w.server.Expires().Equal(before) {
			t.Errorf("round %d: a broken file: %v", i, err)
		}
		w.write("cert", cert)
		if err := w.server.Reload(); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("round %d: a certificate without its key: %v", i, err)
		}
		w.write("key", key)
		if err := w.server.Reload(); err != nil || w.server.Problem() != "" {
			t.Errorf("round %d: %v", i, err)
		}
		seen := made.Load()
		eventually.True(t, "more connections", func() bool { return made.Load() > seen+3 || t.Failed() })
	}
	close(stop)
	loading.Wait()
}
