package webapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// An Authenticator identifies callers: *authn.Authenticator in production.
type Authenticator interface {
	// Identify returns the caller of a request over a connection, with a token or
	// "". Missing or invalid credentials are an ErrUnauthenticated.
	Identify(ctx context.Context, c authn.Connection, token string) (identity.Identity, error)
}

// IdentityOptions are the settings of [WithIdentity]. Only Log is required.
type IdentityOptions struct {
	Log     *slog.Logger
	Limits  Limits                                           // of requests per second
	Turns   *turn.Queue                                      // of requests that read, with those of other transports; a queue of its own if nil
	Refused func(ctx context.Context, source, detail string) // records requests whose callers could not be authenticated
}

// Limits limit the requests of each client.
type Limits interface {
	// Allow counts a request of a client, and reports whether it is within the limit.
	Allow(client string) bool
	// Allowed reports whether Allow would return true, and doesn't count.
	Allowed(client string) bool
}

func tooMany(w http.ResponseWriter, which string) {
	w.Header().Set("Retry-After", "1")
	writeJSON(w, http.StatusTooManyRequests, errorBody{"too many requests per second " + which + " (--requests-per-client): wait, and try again"})
}

func peerHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// WithIdentity authenticates callers, by their certificate or the bearer token in
// the Authorization header, and refuses requests from pages of other web sites.
// A browser sends them with the credentials of its user. peer returns what is known about
// a request's client. Concurrent reads of clients take turns: see [turn.Queue].
func WithIdentity(handler http.Handler, callers Authenticator, peer func(*http.Request) authn.Connection, o IdentityOptions) http.Handler {
	a := &api{log: o.Log}
	if o.Turns == nil {
		o.Turns = turn.New()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			err := tko.Errorf(tko.ErrDenied, "requests from pages of other web sites (%.100q) are not accepted", r.Header.Get("Origin"))
			writeJSON(w, http.StatusForbidden, errorBody{err.Error()})
			return
		}
		address := identity.Identity{}.Client(peerHost(r))
		if o.Limits != nil && !o.Limits.Allowed("failures of "+address) {
			tooMany(w, "from this address fail to authenticate")
			return
		}
		i, err := identify(r, callers, peer)
		if err != nil {
			if o.Limits != nil {
				o.Limits.Allow("failures of " + address)
			}
			if o.Refused != nil && !errors.Is(err, tko.ErrUnavailable) {
				o.Refused(r.Context(), r.RemoteAddr, err.Error())
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="tko"`)
			a.fail(w, r, err)
			return
		}
		client := i.Client(peerHost(r))
		if o.Limits != nil && !o.Limits.Allow(client) {
			tooMany(w, "are made by this client")
			return
		}
		ctx := identity.With(r.Context(), i)
		fair(o.Turns, client, handler, w, r.WithContext(tko.WithAuthor(ctx, tko.Author{Who: i.Subject})))
	})
}

func identify(r *http.Request, callers Authenticator, peer func(*http.Request) authn.Connection) (identity.Identity, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) > 1 {
		return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "there are %d Authorization headers: send one", len(headers))
	}
	token, err := authn.Bearer(r.Header.Get("Authorization"))
	if err != nil {
		return identity.Identity{}, err
	}
	return callers.Identify(r.Context(), peer(r), token)
}

// sameOrigin returns whether a request is not from a page of another web site.
// Following a link there is allowed: the page can't read the response.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") == "navigate" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host || origin == "https://"+r.Host
}

// ConnectionOf returns what a TCP connection tells about a client, without its
// certificates.
func ConnectionOf(r *http.Request) authn.Connection {
	c := authn.Connection{From: r.RemoteAddr}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		ip := net.ParseIP(host)
		c.Loopback = ip != nil && ip.IsLoopback()
	}
	return c
}
