package certs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A ClientAuth is whether clients have certificates.
type ClientAuth string

// The values of ClientAuth.
const (
	None    ClientAuth = "none"    // no certificates are requested
	Request ClientAuth = "request" // a client may have one, which must be valid
	Require ClientAuth = "require" // every client must have one
)

// Options are the settings of a [Server].
type Options struct {
	Cert, Key  string     // files of the server's certificate and key
	ClientCA   string     // file of the authorities of clients; "" if ClientAuth is None
	CRL        string     // file of their revocation lists, or ""
	ClientAuth ClientAuth // Request if "" and there is a ClientCA
	Interval   time.Duration
	Log        *slog.Logger // discards if nil
}

// DefaultInterval is the default interval at which files are checked for
// changes.
const DefaultInterval = time.Second

// A Server is the certificate of a server and the authorities of its clients,
// as of the newest valid content of their files. It may be used concurrently.
type Server struct {
	options Options
	now     atomic.Pointer[state]
	problem atomic.Pointer[string]

	mutex sync.Mutex
	open  map[*Conn]struct{} // connections of clients with certificates
}

// A state is one content of the files.
type state struct {
	digest  [sha256.Size]byte
	cert    tls.Certificate
	pool    *x509.CertPool
	revoked map[string]bool // by issuer and serial number
	until   time.Time       // when the revocation lists are outdated; zero without lists
}

// NewServer reads the files. Missing, unreadable and malformed ones are an
// ErrInvalid.
func NewServer(o Options) (*Server, error) {
	if o.ClientAuth == "" {
		o.ClientAuth = None
		if o.ClientCA != "" {
			o.ClientAuth = Request
		}
	}
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: o, open: map[*Conn]struct{}{}}
	none := ""
	s.problem.Store(&none)
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Run reads the files again when their contents change, until the context ends.
// The contents are compared, so that replaced symbolic links and folders are
// noticed. If a new content is invalid, the previous one stays in use: that is
// logged, and Problem returns it.
func (s *Server) Run(ctx context.Context) {
	ticker := time.NewTicker(s.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before, digest := *s.problem.Load(), s.now.Load().digest
		err := s.Reload()
		switch {
		case err != nil && err.Error() != before:
			s.options.Log.ErrorContext(ctx, "can't reload the tls files, keeping the previous ones", "err", err)
		case err == nil && digest != s.now.Load().digest:
			s.options.Log.InfoContext(ctx, "reloaded the tls files", "expires", s.Expires())
		}
	}
}

// Reload reads the files again. If their contents are invalid, it returns an
// ErrInvalid and the previous contents stay in use. Connections of clients whose
// certificates are no longer valid are closed.
func (s *Server) Reload() error {
	next, err := s.read()
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.problem.Store(&text)
	if err != nil {
		return err
	}
	if before := s.now.Load(); before != nil && before.digest == next.digest {
		return nil
	}
	s.now.Store(next)
	s.closeInvalid()
	return nil
}

// Problem returns why the current content of the files is not in use, or "".
func (s *Server) Problem() string { return *s.problem.Load() }

// Expires returns when the server's certificate expires.
func (s *Server) Expires() time.Time { return s.now.Load().cert.Leaf.NotAfter }

// RevocationsExpire returns when the revocation lists are outdated; zero without
// lists.
func (s *Server) RevocationsExpire() time.Time { return s.now.Load().until }

// RequiresClients returns whether every client must have a certificate.
func (s *Server) RequiresClients() bool { return s.options.ClientAuth == Require }

func (s *Server) read() (*state, error) {
	var next state
	sum := sha256.New()
	content := map[string][]byte{}
	for _, path := range []string{s.options.Cert, s.options.Key, s.options.ClientCA, s.options.CRL} {
		if path == "" {
			continue
		}
		data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "tls: %w", err)
		}
		content[path] = data
		fmt.Fprintf(sum, "%d\n", len(data))
		sum.Write(data)
	}
	sum.Sum(next.digest[:0])
	if before := s.now.Load(); before != nil && before.digest == next.digest {
		return before, nil
	}
	var err error
	if next.cert, err = tls.X509KeyPair(content[s.options.Cert], content[s.options.Key]); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "tls: certificate %q and key %q: %w", s.options.Cert, s.options.Key, err)
	}
	if s.options.ClientCA == "" {
		return &next, nil
	}
	authorities, err := certificates(content[s.options.ClientCA])
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "tls: client authorities %q: %w", s.options.ClientCA, err)
	}
	next.pool = x509.NewCertPool()
	for _, ca := range authorities {
		next.pool.AddCert(ca)
	}
	if s.options.CRL != "" {
		if err := next.revoke(content[s.options.CRL], authorities); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "tls: revocation lists %q: %w", s.options.CRL, err)
		}
	}
	return &next, nil
}

// certificates reads a file of certificates; at least one.
func certificates(data []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for rest := data; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate in PEM format")
	}
	return all, nil
}

// revoke adds revocation lists, in PEM format. Each must be signed by an
// authority.
func (s *state) revoke(data []byte, authorities []*x509.Certificate) error {
	s.revoked = map[string]bool{}
	lists := 0
	for rest := data; ; lists++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "X509 CRL" {
			return fmt.Errorf("there is a block %q: use X509 CRL", block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return err
		}
		if !signed(list, authorities) {
			return fmt.Errorf("the list of %q is not signed by a client authority", list.Issuer)
		}
		if s.until.IsZero() || !list.NextUpdate.IsZero() && list.NextUpdate.Before(s.until) {
			s.until = list.NextUpdate
		}
		for _, entry := range list.RevokedCertificateEntries {
			s.revoked[string(list.RawIssuer)+entry.SerialNumber.String()] = true
		}
	}
	if lists == 0 {
		return errors.New("there is no list in PEM format")
	}
	return nil
}

func signed(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	for _, ca := range authorities {
		if bytes.Equal(ca.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(ca) == nil {
			return true
		}
	}
	return false
}

// Config returns the configuration of a listener whose protocols are negotiated
// by ALPN. Connections that are made later use the newest content of the files.
// Sessions are not resumed, so that a removed authority has no effect in an
// old session.
func (s *Server) Config(protocols ...string) *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := s.now.Load()
		c := &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{now.cert}, ClientCAs: now.pool,
		}
		switch s.options.ClientAuth {
		case Request:
			c.ClientAuth = tls.VerifyClientCertIfGiven
		case Require:
			c.ClientAuth = tls.RequireAndVerifyClientCert
		case None:
		}
		c.VerifyConnection = func(state tls.ConnectionState) error {
			for _, chain := range state.VerifiedChains {
				if !now.isRevoked(chain) {
					return nil
				}
			}
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return errors.New("the certificate is revoked")
		}
		return c, nil
	}
	return base
}

func (s *state) isRevoked(chain []*x509.Certificate) bool {
	for _, cert := range chain {
		if s.revoked[string(cert.RawIssuer)+cert.SerialNumber.String()] {
			return true
		}
	}
	return false
}

// Verify checks the client's certificate against the newest content of the
// files: it may have changed since the connection was made. A client without a
// certificate, and one whose certificate is not valid any more, is an
// ErrUnauthenticated.
func (s *Server) Verify(peer []*x509.Certificate) error {
	now := s.now.Load()
	if len(peer) == 0 || now.pool == nil {
		return tko.Errorf(tko.ErrUnauthenticated, "there is no client certificate: give one with --tls-cert and --tls-key")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range peer[1:] {
		intermediates.AddCert(cert)
	}
	chains, err := peer[0].Verify(x509.VerifyOptions{Roots: now.pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return tko.Errorf(tko.ErrUnauthenticated, "the client certificate is not valid: %w", err)
	}
	for _, chain := range chains {
		if !now.isRevoked(chain) {
			return nil
		}
	}
	return tko.Errorf(tko.ErrUnauthenticated, "the client certificate is revoked")
}

// A Conn is a connection of a client. It is closed when the client's certificate
// is no longer valid.
type Conn struct {
	*tls.Conn

	server *Server
	peer   []*x509.Certificate
	end    *time.Timer
}

// Handshake makes a connection secure. It closes conn if that fails.
func (s *Server) Handshake(ctx context.Context, conn net.Conn, protocols ...string) (*Conn, error) {
	secure := tls.Server(conn, s.Config(protocols...))
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := &Conn{Conn: secure, server: s, peer: secure.ConnectionState().PeerCertificates}
	if len(c.peer) == 0 {
		return c, nil
	}
	s.mutex.Lock()
	s.open[c] = struct{}{}
	c.end = time.AfterFunc(time.Until(c.peer[0].NotAfter), func() { _ = c.Close() })
	s.mutex.Unlock()
	if err := s.Verify(c.peer); err != nil { // the files changed during the handshake
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (c *Conn) forget() {
	if c.end != nil {
		c.end.Stop()
		c.server.mutex.Lock()
		delete(c.server.open, c)
		c.server.mutex.Unlock()
	}
}

// NetConn returns the connection below TLS.
func (c *Conn) NetConn() net.Conn { return c.Conn.NetConn() }

// closeInvalid closes the connections of clients whose certificates are no
// longer valid.
func (s *Server) closeInvalid() {
	s.mutex.Lock()
	var invalid []*Conn
	for c := range s.open {
		if s.Verify(c.peer) != nil {
			invalid = append(invalid, c)
		}
	}
	s.mutex.Unlock()
	for _, c := range invalid {
		_ = c.Conn.NetConn().Close() // at once: the client may not read the closing message of TLS
		_ = c.Close()
	}
}
