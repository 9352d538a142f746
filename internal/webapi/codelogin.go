package webapi

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Limits of logins at an issuer.
const (
	codeLoginLife = 10 * time.Minute
	maxExchanges  = 16 // at the same time
	maxReturn     = 1000
)

// An Issuer authenticates the users of browsers.
type Issuer interface {
	LoginURL(ctx context.Context, l authn.CodeLogin) (string, error)
	Exchange(ctx context.Context, l authn.CodeLogin, code string) (token string, i identity.Identity, err error)
}

// CodeLoginOptions are the settings of [Sessions.CodeLogin].
type CodeLoginOptions struct {
	Issuer Issuer   // nil for none
	URL    string   // of the dashboard for browsers; derived from each request if ""
	Logins []string // ways to log in that the dashboard offers: token, oidc
	Log    *slog.Logger
}

// A codeLogin is a login that has begun, as its cookie holds it, encrypted. So
// logins that are never finished cost the server nothing.
type codeLogin struct {
	authn.CodeLogin

	Return string
	Ends   time.Time
}

// A codeLogins handler lets browsers log in by the code flow of OpenID Connect.
type codeLogins struct {
	CodeLoginOptions

	sessions  *Sessions
	sealer    cipher.AEAD // with a key of this process
	exchanges chan struct{}
}

// CodeLogin returns the handler of GET /auth/logins, which names the ways to log in,
// /auth/login?return=PATH, which sends the browser to the issuer, and /auth/callback, where it comes back
// and gets the cookie of a session. It needs no identity.
func (s *Sessions) CodeLogin(o CodeLoginOptions) (http.Handler, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	sealer, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &codeLogins{CodeLoginOptions: o, sessions: s, sealer: sealer, exchanges: make(chan struct{}, maxExchanges)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /auth/logins", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string][]string{"logins": orEmpty(o.Logins)})
	})
	if o.Issuer != nil {
		mux.HandleFunc("GET /auth/login", c.begin)
		mux.HandleFunc("GET /auth/callback", c.finish)
	}
	return mux, nil
}

// begin sends the browser to the issuer.
func (c *codeLogins) begin(w http.ResponseWriter, r *http.Request) {
	l := codeLogin{
		CodeLogin: authn.CodeLogin{Redirect: c.redirect(r), State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text()},
		Return:    localPath(r.URL.Query().Get("return")), Ends: time.Now().Add(codeLoginLife),
	}
	address, err := c.Issuer.LoginURL(r.Context(), l.CodeLogin)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	value, err := c.seal(l)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	http.SetCookie(w, c.cookie(value, int(codeLoginLife.Seconds())))
	redirect(w, address)
}

// finish starts the session of a browser that comes back from the issuer.
func (c *codeLogins) finish(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, c.cookie("", -1))
	query := r.URL.Query()
	l, err := c.begun(r)
	switch {
	case err != nil:
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(l.State)) != 1:
		err = tko.Errorf(tko.ErrUnauthenticated, "the login is another one than this browser has begun")
	case query.Get("code") == "":
		err = tko.Errorf(tko.ErrDenied, "the issuer refused the login: %.100q", query.Get("error"))
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	select {
	case c.exchanges <- struct{}{}:
		defer func() { <-c.exchanges }()
	default:
		c.fail(w, r, tko.Errorf(tko.ErrUnavailable, "there are too many logins at once: try again"))
		return
	}
	token, i, err := c.Issuer.Exchange(r.Context(), l.CodeLogin, query.Get("code"))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.Log.InfoContext(r.Context(), "login", "subject", i.Subject)
	http.SetCookie(w, c.sessions.cookie(c.sessions.open(token, time.Now(), i.Expires), int(sessionLife.Seconds())))
	redirect(w, l.Return)
}

// fail sends the browser to the page of the login with the kind of the problem. Its
// text is in the log only: a link could show any text to a user.
func (c *codeLogins) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem := "failed"
	switch {
	case errors.Is(err, tko.ErrUnavailable):
		problem = "unavailable"
	case errors.Is(err, tko.ErrDenied):
		problem = "denied"
	}
	c.Log.InfoContext(r.Context(), "login failed", "err", err)
	redirect(w, "/login?problem="+problem)
}

func redirect(w http.ResponseWriter, address string) {
	h := w.Header()
	h.Set("Location", address)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusFound)
}

// redirect returns the address to which the issuer sends a browser back. The issuer
// accepts those only that are registered for the client.
func (c *codeLogins) redirect(r *http.Request) string {
	base := strings.TrimSuffix(c.URL, "/")
	if base == "" {
		scheme := "http"
		if c.sessions.secure {
			scheme = "https"
		}
		base = scheme + "://" + r.Host
	}
	return base + "/auth/callback"
}

// localPath returns the path of a view of the dashboard; / for anything else, such
// as the address of another server.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") ||
		strings.ContainsAny(text, "\\\x00\r\n\t") || strings.HasPrefix(u.Path, "/auth/") || strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return u.RequestURI()
}

func (c *codeLogins) name() string { return c.sessions.name() + "-login" }

func (c *codeLogins) cookie(value string, age int) *http.Cookie {
	cookie := c.sessions.cookie(value, age) //nolint:gosec // Sessions.cookie sets its attributes
	cookie.Name = c.name()
	return cookie
}

func (c *codeLogins) seal(l codeLogin) (string, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, c.sealer.NonceSize())
	_, _ = rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(c.sealer.Seal(nonce, nonce, text, nil)), nil
}

// begun returns the login that the browser has begun.
func (c *codeLogins) begun(r *http.Request) (l codeLogin, err error) {
	wrong := tko.Errorf(tko.ErrUnauthenticated, "this browser has begun no login here, or more than %v ago", codeLoginLife)
	cookie, err := r.Cookie(c.name())
	if err != nil {
		return l, wrong
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(sealed) < c.sealer.NonceSize() {
		return l, wrong
	}
	n := c.sealer.NonceSize()
	text, err := c.sealer.Open(nil, sealed[:n], sealed[n:], nil)
	if err != nil || json.Unmarshal(text, &l) != nil || !l.Ends.After(time.Now()) {
		return l, wrong
	}
	return l, nil
}
