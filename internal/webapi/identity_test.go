package webapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// tokens authenticate callers: the token is the subject, "wrong" is none.
type tokens struct{}

func (tokens) Identify(_ context.Context, c authn.Connection, token string) (identity.Identity, error) {
	switch token {
	case "":
		return identity.Anonymous(c.From), nil
	case "wrong":
		return identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "the token is unknown")
	}
	return identity.Identity{Subject: token, Authenticator: "token"}, nil
}

func TestRequestsOfOneIdentityAreLimited(t *testing.T) {
	t.Parallel()
	var refused []string
	const burst = 5
	handler := webapi.WithIdentity(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), tokens{}, webapi.ConnectionOf,
		webapi.IdentityOptions{Log: slog.New(slog.DiscardHandler), Limits: identity.NewRates(0.001, burst), Refused: func(_ context.Context, source, detail string) {
			refused = append(refused, source+" "+detail)
		}})
	status := func(token, from string) int {
		r := httptest.NewRequest(http.MethodGet, "/api/about", nil)
		r.RemoteAddr = from
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests && (w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "--requests-per-client")) {
			t.Errorf("a refusal without remedy: %v, %s", w.Header(), w.Body)
		}
		return w.Code
	}
	for name, c := range map[string]struct {
		token, from  string
		within, then int
	}{
		"an identity":    {"token:eve", "192.0.2.1:1", http.StatusOK, http.StatusTooManyRequests},
		"an address":     {"", "192.0.2.2:1", http.StatusOK, http.StatusTooManyRequests},
		"wrong tokens":   {"wrong", "192.0.2.3:1", http.StatusUnauthorized, http.StatusTooManyRequests},
		"other identity": {"token:ada", "192.0.2.1:1", http.StatusOK, http.StatusTooManyRequests},
	} {
		for n := range burst {
			if got := status(c.token, c.from); got != c.within {
				t.Errorf("%s: request %d has the status %d, want %d", name, n, got, c.within)
			}
		}
		if got := status(c.token, c.from); got != c.then {
			t.Errorf("%s: one more has the status %d, want %d", name, got, c.then)
		}
	}
	if len(refused) != burst || refused[0] != "192.0.2.3:1 the token is unknown" {
		t.Errorf("recorded refusals: %q, want %d, with source and reason", refused, burst)
	}
}
