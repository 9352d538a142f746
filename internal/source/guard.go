package source

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/tko-orchestrator/tko"
)

type guard = func(network, address string, _ syscall.RawConn) error

// guarded makes connections that a guard allows.
func guarded(g guard) *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, Control: g}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
}

// git's transports are the process's, by scheme. So guarded requests have
// schemes of their own, and their guard comes with their context.
const guardedPrefix = "tko-guarded-"

type guardKey struct{}

var installGuarded = sync.OnceFunc(func() {
	for _, scheme := range []string{"http", "https"} {
		client.InstallProtocol(guardedPrefix+scheme, githttp.NewClient(&http.Client{Timeout: 5 * time.Minute, Transport: gitTransport{}}))
	}
})

// guardGit prepares a location of a git repository, and the context to read it
// with.
func guardGit(ctx context.Context, l location, g guard) (context.Context, location, error) {
	u, err := url.Parse(l.base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, l, tko.Errorf(tko.ErrDenied, "git repositories are read over http and https only here")
	}
	installGuarded()
	l.base = guardedPrefix + l.base
	return context.WithValue(ctx, guardKey{}, g), l, nil
}

// A gitTransport makes the requests of guarded git connections.
type gitTransport struct{}

func (gitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	g, ok := r.Context().Value(guardKey{}).(guard)
	if !ok {
		return nil, tko.Errorf(tko.ErrDenied, "the connection to %s has no guard", r.URL.Host)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme = strings.TrimPrefix(r.URL.Scheme, guardedPrefix)
	response, err := guarded(g).RoundTrip(r)
	if err == nil {
		response.Request = nil // where git would find that the scheme is another one
	}
	return response, err
}
