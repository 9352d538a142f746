package nbi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	// The server delays the second login of a user within 2 s.
	betweenLogins = 2100 * time.Millisecond
	renewEarly    = 5 * time.Minute
	fresh         = 30 * time.Second
	// The server locks accounts after five bad passwords.
	firstPause = time.Minute
	longPause  = time.Hour
)

// shared has what the clients of this process share: connections by place, and
// tokens by account.
var shared = &registry{transports: map[place]*http.Transport{}, accounts: map[accountKey]*account{}, schemes: map[place]string{}}

// salt makes the digests of passwords useless outside this process.
var salt = func() (b [sha256.Size]byte) { _, _ = rand.Read(b[:]); return b }()

type registry struct {
	mu         sync.Mutex
	transports map[place]*http.Transport
	accounts   map[accountKey]*account
	schemes    map[place]string
}

type accountKey struct {
	place
	user string
}

// An account is a user of a place. It makes one login at a time.
type account struct {
	lock chan struct{} // of logins; holds an element while it is locked

	mu       sync.Mutex
	last     time.Time // the last login
	sessions map[sessionKey]*session
	refused  map[sessionKey]*refusal
}

// sessionKey includes the password, so that only clients that have it get the token.
type sessionKey struct {
	project  string
	password [sha256.Size]byte
}

type session struct {
	token   string
	issued  time.Time
	expires time.Time
	again   bool // made because the server refused the token of the session before
	// works are the resources of successful requests with the token, guarded by the
	// account's mu: the server refuses requests without permission with 401, too.
	works map[string]bool
}

// A refusal is a refused login.
type refusal struct {
	err   error
	until time.Time
	pause time.Duration
}

func (r *registry) transport(p place, e Endpoint) (*http.Transport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.transports[p]; ok {
		return t, nil
	}
	t, err := e.transport()
	if err == nil {
		r.transports[p] = t
	}
	return t, err
}

func (r *registry) account(k accountKey) *account {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.accounts[k]
	if !ok {
		a = &account{lock: make(chan struct{}, 1), sessions: map[sessionKey]*session{}, refused: map[sessionKey]*refusal{}}
		r.accounts[k] = a
	}
	return a
}

// scheme returns the protocol of a place, https or http. It is detected only for
// places on this machine.
func (r *registry) scheme(ctx context.Context, p place) (string, error) {
	if p.scheme != "" {
		return p.scheme, nil
	}
	r.mu.Lock()
	s := r.schemes[p]
	r.mu.Unlock()
	if s != "" {
		return s, nil
	}
	s, err := detectScheme(ctx, p.host)
	if err == nil {
		r.mu.Lock()
		r.schemes[p] = s
		r.mu.Unlock()
	}
	return s, err
}

func passwordKey(project string, password secret.Text) sessionKey {
	k := sessionKey{project: project}
	mac := hmac.New(sha256.New, salt[:])
	mac.Write([]byte(password))
	mac.Sum(k.password[:0])
	return k
}

// valid returns the session if it doesn't expire soon; nil otherwise.
func (a *account) valid(k sessionKey) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[k]
	if s == nil {
		return nil
	}
	early := min(renewEarly, s.expires.Sub(s.issued)/10)
	if !time.Now().Before(s.expires.Add(-early)) {
		return nil
	}
	return s
}

// worked records a successful request for a resource.
func (a *account) worked(s *session, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.works[resource] = true
}

// drop removes a session whose token the server refused. It reports whether another
// login is worthwhile: not if the session is new, was made for the same reason, and
// no request for this resource has succeeded with it.
func (a *account) drop(k sessionKey, s *session, resource string) (worthwhile bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.again && !s.works[resource] && time.Since(s.issued) < fresh {
		return false
	}
	if a.sessions[k] == s {
		delete(a.sessions, k)
	}
	return true
}

// session returns a session of the client's account, and logs in if necessary.
// refused is the session whose token the server refused; nil if none.
func (c *Client) session(ctx context.Context, refused *session) (*session, sessionKey, error) {
	c.mu.Lock()
	k, known := c.key, c.known
	c.mu.Unlock()
	if known && refused == nil {
		if s := c.account.valid(k); s != nil {
			return s, k, nil
		}
	}
	password, err := c.endpoint.Password(ctx)
	if err != nil {
		return nil, k, fmt.Errorf("reading the password of OSM's user %q: %w", c.endpoint.User, err)
	}
	k = passwordKey(c.endpoint.Project, password)
	c.mu.Lock()
	c.key, c.known = k, true
	c.mu.Unlock()

	a := c.account
	select {
	case a.lock <- struct{}{}:
		defer func() { <-a.lock }()
	case <-ctx.Done():
		return nil, k, context.Cause(ctx)
	}
	if s := a.valid(k); s != nil { // another goroutine has logged in
		return s, k, nil
	}
	if err := a.mayTry(k); err != nil {
		return nil, k, err
	}
	if err := pause.For(ctx, time.Until(a.last.Add(betweenLogins))); err != nil {
		return nil, k, err
	}
	s, err := c.login(ctx, password)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	if err != nil {
		if no, ok := errors.AsType[*loginError](err); ok && no.status == http.StatusUnauthorized {
			r := a.refused[k]
			if r == nil {
				r = &refusal{pause: firstPause}
				a.refused[k] = r
			}
			r.err, r.until = err, time.Now().Add(r.pause)
			r.pause = min(2*r.pause, longPause)
		}
		return nil, k, err
	}
	s.again = refused != nil
	delete(a.refused, k)
	a.sessions[k] = s
	return s, k, nil
}

// mayTry returns an error for a while after the password was refused.
func (a *account) mayTry(k sessionKey) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.refused[k]; r != nil && time.Now().Before(r.until) {
		return fmt.Errorf("%w (the same password is not tried again before %s, so that the account isn't locked)", r.err, r.until.Format(time.TimeOnly))
	}
	return nil
}

func (c *Client) login(ctx context.Context, password secret.Text) (*session, error) {
	var response struct {
		ID      string  `json:"id"`
		Issued  float64 `json:"issued_at"`
		Expires float64 `json:"expires"`
	}
	body := map[string]string{"username": c.endpoint.User, "password": string(password), "project_id": c.endpoint.Project}
	began := time.Now()
	if err := c.once(ctx, request{method: http.MethodPost, path: "/admin/v1/tokens", body: body}, nil, &response); err != nil {
		what := fmt.Sprintf("logging in to OSM as %q in project %q: ", c.endpoint.User, c.endpoint.Project)
		if refused, ok := errors.AsType[*Error](err); ok {
			return nil, &loginError{text: what + err.Error(), status: refused.Status, unavailable: refused.Is(tko.ErrUnavailable)}
		}
		return nil, fmt.Errorf("%s%w", what, err)
	}
	if response.ID == "" {
		return nil, tko.Errorf(tko.ErrUnavailable, "logging in to OSM as %q: the response has no token", c.endpoint.User)
	}
	life := time.Hour
	switch { // by the server's clock, if the response has its time
	case response.Expires > 0 && response.Issued > 0:
		life = seconds(response.Expires - response.Issued)
	case response.Expires > 0:
		life = time.Until(time.Unix(0, int64(response.Expires*float64(time.Second))))
	}
	if life <= 0 {
		return nil, tko.Errorf(tko.ErrUnavailable, "logging in to OSM as %q: the new token has expired already: check the server's clock", c.endpoint.User)
	}
	return &session{token: response.ID, issued: began, expires: began.Add(life), works: map[string]bool{}}, nil
}

// A loginError is an error response to a login. It is no response to the request that
// needs the login: if there is no such project, for example, that doesn't mean that
// there is no such instance.
type loginError struct {
	text        string
	status      int
	unavailable bool // the server is unavailable for now
}

func (e *loginError) Error() string { return e.text }

func (e *loginError) Is(target error) bool {
	if e.unavailable {
		return target == tko.ErrUnavailable
	}
	return target == tko.ErrDenied
}

func seconds(f float64) time.Duration {
	return time.Duration(min(f, math.MaxInt32) * float64(time.Second))
}
