package certs

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"time"
)

// handshakeTime is the time limit for a client to make its connection secure.
const handshakeTime = 20 * time.Second

// tlsRecord is the first byte of a TLS handshake. Neither HTTP nor a line of
// text starts with it.
const tlsRecord = 0x16

// Accept makes an accepted connection secure; see [Server.Listener]. It closes
// conn if that fails.
func (s *Server) Accept(ctx context.Context, conn net.Conn, protocols ...string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	if s.RequiresClients() || !isLoopback(conn) {
		return s.secure(ctx, conn, protocols)
	}
	first := make([]byte, 1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err := io.ReadFull(conn, first)
	if stop(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	conn = &unread{Conn: conn, first: first}
	if first[0] != tlsRecord {
		return conn, nil
	}
	return s.secure(ctx, conn, protocols)
}

func (s *Server) secure(ctx context.Context, conn net.Conn, protocols []string) (net.Conn, error) {
	secure, err := s.Handshake(ctx, conn, protocols...)
	if err != nil {
		return nil, err
	}
	return secure, nil
}

func isLoopback(conn net.Conn) bool {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// An unread connection returns bytes that were read from it again.
type unread struct {
	net.Conn

	first []byte
}

func (c *unread) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection itself.
func (c *unread) NetConn() net.Conn { return c.Conn }

// Listener returns a listener whose connections are secure: they use TLS, except
// for those from this machine, which may also use plain text, unless clients are
// required to have certificates. The handshake is made at the first read, so that
// a slow client does not delay others.
func (s *Server) Listener(l net.Listener, protocols ...string) net.Listener {
	return &listener{Listener: l, server: s, protocols: protocols}
}

type listener struct {
	net.Listener

	server    *Server
	protocols []string
}

func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lazy{Conn: conn, accept: func() (net.Conn, error) {
		return l.server.Accept(context.Background(), conn, l.protocols...)
	}}, nil
}

// A lazy connection is made secure at its first use.
type lazy struct {
	net.Conn // below TLS

	accept func() (net.Conn, error)
	once   sync.Once
	secure net.Conn
	err    error
}

func (c *lazy) ready() (net.Conn, error) {
	c.once.Do(func() { c.secure, c.err = c.accept() })
	return c.secure, c.err
}

func (c *lazy) Read(p []byte) (int, error) {
	conn, err := c.ready()
	if err != nil {
		return 0, err
	}
	return conn.Read(p)
}

func (c *lazy) Write(p []byte) (int, error) {
	conn, err := c.ready()
	if err != nil {
		return 0, err
	}
	return conn.Write(p)
}

func (c *lazy) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.err = net.ErrClosed })
	if secure, ok := c.secure.(*Conn); ok {
		secure.forget()
	}
	return err
}

// Peer returns the certificates of the client of a connection that a [Server]
// made, without the connections around it; none if there are none.
func Peer(conn net.Conn) []*x509.Certificate {
	for conn != nil {
		switch c := conn.(type) {
		case *Conn:
			return c.peer
		case *lazy:
			secure, err := c.ready()
			if err != nil {
				return nil
			}
			conn = secure
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}
