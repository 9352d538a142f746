package osm

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
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	// The server lets a user who logs in twice within 2 s wait.
	betweenLogins = 2100 * time.Millisecond
	renewEarly    = 5 * time.Minute
	fresh         = 30 * time.Second
	// The server locks accounts after five bad passwords.
	firstPause = time.Minute
	longPause  = time.Hour
)

// shared is what clients share in this process: connections by place, and
// tokens by account.
var shared = &registry{transports: map[place]*http.Transport{}, accounts: map[accountKey]*account{}, schemes: map[place]string{}}

// salt keeps what is known of passwords from meaning anything elsewhere.
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

// account is a user of a place. Logins come one by one.
type account struct {
	turn chan struct{} // held by who logs in

	mu       sync.Mutex
	last     time.Time // the last login
	sessions map[sessionKey]*session
	refused  map[sessionKey]*refusal
}

// sessionKey has the password in it: who doesn't know it gets no token.
type sessionKey struct {
	project  string
	password [sha256.Size]byte
}

type session struct {
	token   string
	issued  time.Time
	expires time.Time
	again   bool // it was made because its predecessor was refused
	// works are the resources that the server has answered with it, guarded by
	// the account's mu: who isn't allowed to do something is refused with 401, too.
	works map[string]bool
}

// refusal is a login that was refused.
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
		a = &account{turn: make(chan struct{}, 1), sessions: map[sessionKey]*session{}, refused: map[sessionKey]*refusal{}}
		r.accounts[k] = a
	}
	return a
}

// scheme is what a place speaks. Only places on this machine are asked.
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
	s, err := speaks(ctx, p.host)
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

// valid is a session that has enough of its life left.
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

// worked notes that the server took a session for a resource.
func (a *account) worked(s *session, resource string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.works[resource] = true
}

// drop forgets a session that the server doesn't take any more. It says
// whether it makes sense to log in again: not if that was just done for the
// same reason, and hasn't helped with this resource.
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

// session answers a session for the client's account, logging in if need be.
// After another one was refused, that is said.
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
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, k, context.Cause(ctx)
	}
	if s := a.valid(k); s != nil { // somebody else was faster
		return s, k, nil
	}
	if err := a.mayTry(k); err != nil {
		return nil, k, err
	}
	if err := sleep(ctx, time.Until(a.last.Add(betweenLogins))); err != nil {
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

// mayTry says no for a while after a password was refused.
func (a *account) mayTry(k sessionKey) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.refused[k]; r != nil && time.Now().Before(r.until) {
		return fmt.Errorf("%w (the same password is not tried again before %s, so that the account isn't locked)", r.err, r.until.Format(time.TimeOnly))
	}
	return nil
}

func (c *Client) login(ctx context.Context, password secret.Text) (*session, error) {
	var answer struct {
		ID      string  `json:"id"`
		Issued  float64 `json:"issued_at"`
		Expires float64 `json:"expires"`
	}
	body := map[string]string{"username": c.endpoint.User, "password": string(password), "project_id": c.endpoint.Project}
	began := time.Now()
	if err := c.once(ctx, request{method: http.MethodPost, path: "/admin/v1/tokens", body: body}, nil, &answer); err != nil {
		what := fmt.Sprintf("logging in to OSM as %q in project %q: ", c.endpoint.User, c.endpoint.Project)
		if said, ok := errors.AsType[*Error](err); ok {
			return nil, &loginError{text: what + err.Error(), status: said.Status, away: said.Is(tko.ErrUnavailable)}
		}
		return nil, fmt.Errorf("%s%w", what, err)
	}
	if answer.ID == "" {
		return nil, tko.Errorf(tko.ErrUnavailable, "logging in to OSM as %q: the answer holds no token", c.endpoint.User)
	}
	life := time.Hour
	switch { // by the server's clock, if it says what that shows
	case answer.Expires > 0 && answer.Issued > 0:
		life = seconds(answer.Expires - answer.Issued)
	case answer.Expires > 0:
		life = time.Until(time.Unix(0, int64(answer.Expires*float64(time.Second))))
	}
	if life <= 0 {
		return nil, tko.Errorf(tko.ErrUnavailable, "logging in to OSM as %q: the new token has expired already: look at the server's clock", c.endpoint.User)
	}
	return &session{token: answer.ID, issued: began, expires: began.Add(life), works: map[string]bool{}}, nil
}

// A loginError is an answer to a login that says no. It is never an answer to
// what was to be asked then: that there is no such project, say, doesn't mean
// that there is no such instance.
type loginError struct {
	text   string
	status int
	away   bool // the server can't for now
}

func (e *loginError) Error() string { return e.text }

func (e *loginError) Is(target error) bool {
	if e.away {
		return target == tko.ErrUnavailable
	}
	return target == tko.ErrDenied
}

func seconds(f float64) time.Duration {
	return time.Duration(min(f, math.MaxInt32) * float64(time.Second))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
