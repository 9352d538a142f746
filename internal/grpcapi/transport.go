package grpcapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Secure makes accepted connections secure: see
// [github.com/tko-orchestrator/tko/internal/certs.Server].
type Secure struct {
	Accept func(ctx context.Context, conn net.Conn, protocols ...string) (net.Conn, error)
	Peer   func(conn net.Conn) []*x509.Certificate // of the client; none without a certificate
}

// ListenProcess returns a listener for connections from this process, which are
// of one of our own controllers.
func ListenProcess(l net.Listener, role string) net.Listener { return processListener{l, role} }

type processListener struct {
	net.Listener

	role string
}

func (l processListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return processConn{conn, l.role}, nil
}

// A processConn is a connection from this process.
type processConn struct {
	net.Conn

	role string
}

// transport makes connections secure, and records who is at their other ends.
type transport struct{ secure *Secure }

// A caller is the client at the other end of a connection.
type caller struct {
	credentials.CommonAuthInfo

	connection authn.Connection

	mutex sync.Mutex
	known identity.Identity // without a token
	until time.Time         // when known is to be determined again
}

// AuthType names the type of information.
func (*caller) AuthType() string { return "tko" }

// rememberCaller is how long the identity of a connection is remembered.
const rememberCaller = time.Minute

// identify returns the identity of a call.
func (c *caller) identify(ctx context.Context, a Authenticator, token string) (identity.Identity, error) {
	if token != "" {
		return a.Identify(ctx, c.connection, token)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := time.Now()
	if now.Before(c.until) && !c.known.Expired(now) {
		return c.known, nil
	}
	i, err := a.Identify(ctx, c.connection, "")
	if err == nil {
		c.known, c.until = i, now.Add(rememberCaller)
	}
	return i, err
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &caller{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	c.connection.From = conn.RemoteAddr().String()
	below := below(conn)
	if own, ok := below.(processConn); ok {
		c.connection = authn.Connection{From: "process", Loopback: true, Role: own.role}
		return conn, c, nil
	}
	switch address := below.RemoteAddr().(type) {
	case *net.UnixAddr:
		user, err := peerUser(below)
		if err != nil {
			return nil, nil, err
		}
		c.connection = authn.Connection{From: "unix", User: user}
		return conn, c, nil
	case *net.TCPAddr:
		c.connection.Loopback = address.IP.IsLoopback()
	default: // the same process
		c.connection.From, c.connection.Loopback = "process", true
		return conn, c, nil
	}
	if t.secure == nil {
		return conn, c, nil
	}
	secure, err := t.secure.Accept(context.Background(), conn, "h2")
	if err != nil {
		return nil, nil, err
	}
	if n, ok := secure.(interface{ ConnectionState() tls.ConnectionState }); ok {
		if n.ConnectionState().NegotiatedProtocol != "h2" {
			_ = secure.Close()
			return nil, nil, errors.New("the client did not negotiate HTTP/2 by ALPN")
		}
		c.SecurityLevel = credentials.PrivacyAndIntegrity
	}
	if chain := t.secure.Peer(secure); len(chain) > 0 {
		c.connection.Peer = chain
	}
	return secure, c, nil
}

// below returns the connection below those that count and observe.
func below(conn net.Conn) net.Conn {
	for {
		c, ok := conn.(*connection)
		if !ok {
			return conn
		}
		conn = c.Conn
	}
}

var errServerOnly = errors.New("these credentials are for servers")

func (transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return errServerOnly }

// callerOf returns the client of a call.
func callerOf(ctx context.Context) *caller {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(*caller); ok {
			return c
		}
	}
	return &caller{connection: authn.Connection{From: "unknown"}}
}
