package webapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// A fakeIssuer gives a token for the code "good".
type fakeIssuer struct{ exchanged int }

func (f *fakeIssuer) LoginURL(_ context.Context, l authn.CodeLogin) (string, error) {
	return "https://issuer.test/?state=" + l.State + "&redirect_uri=" + url.QueryEscape(l.Redirect), nil
}

func (f *fakeIssuer) Exchange(_ context.Context, _ authn.CodeLogin, code string) (string, identity.Identity, error) {
	f.exchanged++
	if code != "good" {
		return "", identity.Identity{}, tko.Errorf(tko.ErrUnauthenticated, "unknown code")
	}
	return "token", identity.Identity{Subject: "oidc:corp:ann"}, nil
}

func TestALoginEndsOnlyInTheBrowserThatHasBegunIt(t *testing.T) {
	issuer := &fakeIssuer{}
	sessions := NewSessions(true)
	handler, err := sessions.CodeLogin(CodeLoginOptions{Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string, cookies []*http.Cookie) *http.Response {
		r := httptest.NewRequest(http.MethodGet, "https://tko.test"+path, nil)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		response := w.Result()
		_ = response.Body.Close()
		return response
	}
	where := func(path string, cookies []*http.Cookie) string { return get(path, cookies).Header.Get("Location") } //nolint:bodyclose // get closes it
	begin := func() (state string, cookies []*http.Cookie) {
		response := get("/auth/login?return=/sites", nil) //nolint:bodyclose // get closes it
		to, err := response.Location()
		if err != nil {
			t.Fatal(err)
		}
		if back := to.Query().Get("redirect_uri"); back != "https://tko.test/auth/callback" {
			t.Errorf("the issuer sends the browser back to %s", back)
		}
		for _, c := range response.Cookies() {
			if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode {
				t.Errorf("the cookie of a login is %+v", c)
			}
		}
		return to.Query().Get("state"), response.Cookies()
	}
	state, mine := begin()
	other, _ := begin()
	forged := []*http.Cookie{{Name: mine[0].Name, Value: mine[0].Value[:len(mine[0].Value)-2] + "AA"}}
	for name, test := range map[string]struct {
		query   string
		cookies []*http.Cookie
		want    string
	}{
		"of another browser":   {"code=good&state=" + other, mine, "/login?problem=failed"},
		"without its cookie":   {"code=good&state=" + state, nil, "/login?problem=failed"},
		"with a forged cookie": {"code=good&state=" + state, forged, "/login?problem=failed"},
		"without a state":      {"code=good", mine, "/login?problem=failed"},
		"refused":              {"error=access_denied&state=" + state, mine, "/login?problem=denied"},
	} {
		if to := where("/auth/callback?"+test.query, test.cookies); to != test.want {
			t.Errorf("a login %s leads to %s, want %s", name, to, test.want)
		}
	}
	if issuer.exchanged > 0 {
		t.Errorf("%d codes of other logins were sent to the issuer", issuer.exchanged)
	}
	if to := where("/auth/callback?code=bad&state="+state, mine); to != "/login?problem=failed" {
		t.Errorf("a wrong code leads to %s", to)
	}
	response := get("/auth/callback?code=good&state="+state, mine) //nolint:bodyclose // get closes it
	if to := response.Header.Get("Location"); to != "/sites" {
		t.Errorf("a login leads to %s", to)
	}
	open := false
	for _, c := range response.Cookies() {
		if c.Name == "__Host-tko" && c.Value != "" && c.HttpOnly && c.Secure {
			open = true
		}
	}
	if !open || len(sessions.byKey) != 1 {
		t.Errorf("after the login, there are %d sessions, and the cookies %v", len(sessions.byKey), response.Cookies())
	}
}
