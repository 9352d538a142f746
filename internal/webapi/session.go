package webapi

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Limits of sessions.
const (
	sessionLife = 12 * time.Hour
	maxSessions = 10_000
)

// Sessions let browsers authenticate by a cookie instead of a token that scripts
// could read. A session holds the token in memory only, and every request is
// authenticated with it again, so a revoked or expired token ends its sessions. So
// does a restart of the server.
type Sessions struct {
	secure bool
	mutex  sync.Mutex
	byKey  map[[sha256.Size]byte]session
}

type session struct {
	token string
	ends  time.Time
}

// NewSessions makes sessions. secure states that the server has TLS.
func NewSessions(secure bool) *Sessions {
	return &Sessions{secure: secure, byKey: map[[sha256.Size]byte]session{}}
}

func (s *Sessions) name() string {
	if s.secure {
		return "__Host-tko"
	}
	return "tko-session"
}

func (s *Sessions) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: s.name(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode} //nolint:gosec // Secure with TLS; without, the server serves this machine only
}

// open starts a session, and returns the value of its cookie.
func (s *Sessions) open(token string, now, ends time.Time) string {
	value := rand.Text()
	if latest := now.Add(sessionLife); ends.IsZero() || ends.After(latest) {
		ends = latest
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.byKey) >= maxSessions {
		s.sweep(now)
	}
	s.byKey[sha256.Sum256([]byte(value))] = session{token: token, ends: ends}
	return value
}

// sweep removes the sessions that have ended, or else the one that ends first.
func (s *Sessions) sweep(now time.Time) {
	var oldest [sha256.Size]byte
	var first time.Time
	removed := false
	for key, one := range s.byKey {
		if !one.ends.After(now) {
			delete(s.byKey, key)
			removed = true
			continue
		}
		if first.IsZero() || one.ends.Before(first) {
			oldest, first = key, one.ends
		}
	}
	if !removed {
		delete(s.byKey, oldest)
	}
}

func (s *Sessions) find(value string, now time.Time) (token string, ok bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	one, ok := s.byKey[sha256.Sum256([]byte(value))]
	return one.token, ok && one.ends.After(now)
}

func (s *Sessions) end(value string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.byKey, sha256.Sum256([]byte(value)))
}

// Wrap authenticates requests with the token of their session, before a handler
// made by [WithIdentity]. Requests with an Authorization header don't need one. A
// cookie whose session has ended is refused, and removed.
func (s *Sessions) Wrap(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(s.name())
		if err != nil || r.Header.Get("Authorization") != "" {
			handler.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") != "same-origin" {
			writeJSON(w, http.StatusForbidden, errorBody{"requests with a session that change something need the header Origin: use a token in the Authorization header outside of browsers"})
			return
		}
		token, ok := s.find(cookie.Value, time.Now())
		if !ok {
			http.SetCookie(w, s.cookie("", -1))
			writeJSON(w, http.StatusUnauthorized, errorBody{"the session has ended: log in again"})
			return
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		handler.ServeHTTP(w, r)
	})
}

// Handler handles POST /auth/session, which starts a session with the token of its
// Authorization header, and DELETE, which ends that of its cookie. It must be within
// [WithIdentity], which checks the token.
func (s *Sessions) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /auth/session", func(w http.ResponseWriter, r *http.Request) {
		token, err := authn.Bearer(r.Header.Get("Authorization"))
		i, _ := identity.From(r.Context())
		if err != nil || token == "" || i.IsZero() || i.IsAnonymous() {
			err := tko.Errorf(tko.ErrUnauthenticated, "there is no token: send it as the header Authorization: Bearer TOKEN")
			writeJSON(w, http.StatusUnauthorized, errorBody{err.Error()})
			return
		}
		now := time.Now()
		http.SetCookie(w, s.cookie(s.open(token, now, i.Expires), int(sessionLife.Seconds())))
		writeJSON(w, http.StatusOK, map[string]string{"subject": i.Subject})
	})
	mux.HandleFunc("DELETE /auth/session", func(w http.ResponseWriter, r *http.Request) {
		if cookie, err := r.Cookie(s.name()); err == nil {
			s.end(cookie.Value)
		}
		http.SetCookie(w, s.cookie("", -1))
		writeJSON(w, http.StatusOK, map[string]string{})
	})
	return mux
}
