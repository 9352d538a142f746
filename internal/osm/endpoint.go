package osm

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
	"github.com/tko-orchestrator/tko/internal/secret"
)

// An Endpoint is where the NBI is, and who asks.
type Endpoint struct {
	// URL is https://HOST[:PORT], with or without /osm at its end. Plain http
	// only if it says so. Without a scheme it is https; on a loopback address,
	// where nobody can be in between, it is what the server speaks.
	URL string
	// CA are the certificates, in PEM, that the server's is signed by; the
	// system's if empty.
	CA []byte
	// Insecure accepts any certificate.
	Insecure bool
	User     string
	Project  string // name or ID
	// Password is asked for at each login, so it may change.
	Password func(ctx context.Context) (secret.Text, error)
}

// Options are the settings of a Client. The zero value works.
type Options struct {
	Timeout time.Duration // of one request, its answer included; 60 s if 0. Packages have ten times that
	Log     *slog.Logger  // nowhere if nil
}

// place is a server, and how we make sure that it is the one.
type place struct {
	scheme   string // empty: what the server speaks
	host     string // with the port
	path     string // before /osm
	ca       [sha256.Size]byte
	insecure bool
}

// readURL reads an endpoint's URL.
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
	if bare && loopback(u.Hostname()) {
		p.scheme = ""
	}
	return p, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// transport makes the connections of a place.
func (e Endpoint) transport() (*http.Transport, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.Insecure} //nolint:gosec // only if the user says so
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

// maxSpeaks is how long a server may take to say what it speaks.
const maxSpeaks = 5 * time.Second

// speaks finds out what a server on a loopback address speaks. One that speaks
// plain http may say so, hang up, or wait for the end of a line when it is
// greeted with TLS: so it is asked in plain http then.
func speaks(ctx context.Context, host string) (scheme string, err error) {
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "443")
	}
	greet := func(say func(net.Conn) error) error {
		ctx, cancel := context.WithTimeout(ctx, maxSpeaks)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		return say(conn)
	}
	err = greet(func(conn net.Conn) error {
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	})
	if alert, ok := errors.AsType[*net.OpError](err); err == nil || ok && alert.Op == "remote error" { // or it refuses, in TLS
		return "https", nil
	}
	plainErr := greet(func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "HEAD / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		answer := make([]byte, len("HTTP/"))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/" {
			return fmt.Errorf("it isn't http: %w", orEOF(err))
		}
		return nil
	})
	if plainErr == nil {
		return "http", nil
	}
	return "", fmt.Errorf("finding out what %s speaks: %w", host, err)
}
