package nbi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/secret"
)

// An Endpoint is the location of an NBI, and an account.
type Endpoint struct {
	// URL is https://HOST[:PORT] or http://HOST[:PORT], with or without /osm at its
	// end. Without a scheme it is https, but on a loopback address, where requests
	// can't be intercepted, the protocol of the server is detected.
	URL string
	// CA are the certificates of CAs in PEM that may sign the server's; the system's
	// if empty.
	CA []byte
	// Insecure accepts any certificate.
	Insecure bool
	User     string
	Project  string // name or ID
	// Password returns the password. It is called at each login, so the password may
	// change.
	Password func(ctx context.Context) (secret.Text, error)
}

// Options are the settings of a Client. The zero value works.
type Options struct {
	// Begin is called before each request that changes OSM. If it returns an error, the request
	// isn't made. None if nil.
	Begin   func(context.Context) error
	Timeout time.Duration // of a request with its response; 60 s if 0. Ten times as long for packages
	Log     *slog.Logger  // discarded if nil
}

// A place is a server, with the way to authenticate it.
type place struct {
	scheme   string // to be detected if empty
	host     string // with the port
	path     string // before /osm
	ca       [sha256.Size]byte
	insecure bool
}

// place returns the place of an endpoint. ErrInvalid if the URL is invalid.
func (e Endpoint) place() (place, error) {
	text := strings.TrimSpace(e.URL)
	bare := !strings.Contains(text, "://")
	if bare {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case e.URL == "":
		return place{}, tko.Errorf(tko.ErrInvalid, "no URL of an OSM: write https://HOST:PORT")
	case err != nil:
		return place{}, tko.Errorf(tko.ErrInvalid, "the URL of OSM can't be read: write https://HOST:PORT")
	case u.User != nil:
		return place{}, tko.Errorf(tko.ErrInvalid, "the URL of OSM holds a user: users and passwords go elsewhere")
	case u.Scheme != "https" && u.Scheme != "http":
		return place{}, tko.Errorf(tko.ErrInvalid, "the URL of OSM begins with %q: use https, or http", u.Scheme)
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return place{}, tko.Errorf(tko.ErrInvalid, "the URL of OSM %q: write https://HOST:PORT", e.URL)
	}
	p := place{scheme: u.Scheme, host: u.Host, insecure: e.Insecure, ca: sha256.Sum256(e.CA)}
	p.path = strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/osm")
	if bare && guard.IsLocal(u.Hostname()) {
		p.scheme = ""
	}
	return p, nil
}

// transport returns a transport for the connections to a place.
func (e Endpoint) transport() (*http.Transport, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.Insecure} //nolint:gosec // only if the user configures it
	if len(e.CA) > 0 {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(e.CA) {
			return nil, tko.Errorf(tko.ErrInvalid, "the CA of OSM holds no certificate in PEM")
		}
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       t,
		TLSHandshakeTimeout:   20 * time.Second,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       8 * time.Second, // before the server closes them, at 10 s
		ResponseHeaderTimeout: 10 * time.Minute,
	}, nil
}

// detectTimeout is the timeout of each try to detect a protocol.
const detectTimeout = 5 * time.Second

// detectScheme returns the protocol of a server on a loopback address, https or http.
// It tries TLS first. A server without TLS may respond with an error, close the
// connection, or wait for the end of a line; then it tries plain http.
func detectScheme(ctx context.Context, host string) (scheme string, err error) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	try := func(protocol func(net.Conn) error) error {
		ctx, cancel := context.WithTimeout(ctx, detectTimeout)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		return protocol(conn)
	}
	err = try(func(conn net.Conn) error {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	})
	if alert, ok := errors.AsType[*net.OpError](err); err == nil || ok && alert.Op == "remote error" { // a TLS alert is also TLS
		return "https", nil
	}
	plainErr := try(func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		response := make([]byte, len("HTTP/"))
		if _, err := io.ReadFull(conn, response); err != nil || string(response) != "HTTP/" {
			return fmt.Errorf("it isn't http: %w", orEOF(err))
		}
		return nil
	})
	if plainErr == nil {
		return "http", nil
	}
	return "", fmt.Errorf("detecting the protocol of %s: %w", host, err)
}
