package webapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// An Authenticator identifies callers: *authn.Authenticator in production.
type Authenticator interface {
	// Identify returns the caller of a request over a connection, with a token or
	// "". Missing or invalid credentials are an ErrUnauthenticated.
	Identify(ctx context.Context, c authn.Connection, token string) (identity.Identity, error)
}

// WithIdentity authenticates callers, by their certificate or the bearer token in
// the Authorization header, and refuses requests from pages of other web sites.
// A browser sends them with the credentials of its user. peer returns what is known about
// a request's client.
func WithIdentity(handler http.Handler, callers Authenticator, peer func(*http.Request) authn.Connection, log *slog.Logger) http.Handler {
	a := &api{log: log}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			err := tko.Errorf(tko.ErrDenied, "requests from pages of other web sites (%.100q) are not accepted", r.Header.Get("Origin"))
			writeJSON(w, http.StatusForbidden, errorBody{err.Error()})
			return
		}
		i, err := identify(r, callers, peer)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="tko"`)
			a.fail(w, r, err)
			return
		}
		ctx := identity.With(r.Context(), i)
		handler.ServeHTTP(w, r.WithContext(tko.WithAuthor(ctx, tko.Author{Who: i.Subject})))
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
