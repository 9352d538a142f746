package kubeapi

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// WatchLimits limit the watches that are served concurrently, and how long a
// watcher may not read: then its connection or stream ends, and it can watch
// again from the last event that it received. They also limit all requests of a user.
// 0 is no limit.
type WatchLimits struct {
	Rate  float64 // requests per second of one user, with bursts of twice as many
	User  int     // watches of one user
	Total int
	Slow  time.Duration
}

// retryWatch is the number of seconds after which a refused client may try again.
const retryWatch = 5

// A watchLimiter counts watches.
type watchLimiter struct {
	limits   WatchLimits
	turns    *turn.Queue                  // of requests that read
	rates    *identity.Rates              // by user; nil without a limit
	codecs   runtime.NegotiatedSerializer // encodes errors
	observer Observer

	mutex sync.Mutex
	total int
	users map[string]int
}

func newWatchLimiter(limits WatchLimits, turns *turn.Queue, codecs runtime.NegotiatedSerializer, observer Observer) *watchLimiter {
	l := &watchLimiter{limits: limits, turns: turns, codecs: codecs, observer: observer, users: map[string]int{}}
	if limits.Rate > 0 {
		l.rates = identity.NewRates(limits.Rate, max(1, int(2*limits.Rate)))
	}
	return l
}

// acquire counts a watch of the user with a name. If there are too many, problem is the error
// text.
func (l *watchLimiter) acquire(name string) (release func(), problem string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.limits.User > 0 && l.users[name] >= l.limits.User:
		l.observer.Refused(limitUser)
		return nil, "too many watches of one user (--streams-per-client): end some"
	case l.limits.Total > 0 && l.total >= l.limits.Total:
		l.observer.Refused(limitTotal)
		return nil, "too many watches (--streams): try again later"
	}
	l.total++
	l.users[name]++
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.total--
		l.users[name]--
		if l.users[name] == 0 {
			delete(l.users, name)
		}
	}, ""
}

// limit applies the limits to a handler. Authentication must come first.
func (l *watchLimiter) limit(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			handler.ServeHTTP(w, r)
			return
		}
		name := ""
		if user, ok := request.UserFrom(r.Context()); ok {
			name = user.GetName()
		}
		if l.rates != nil && !l.rates.Allow(name) {
			l.observer.Refused(limitRate)
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests("too many requests per second of one user (--requests-per-client): wait, and try again", 1), l.codecs, v1alpha1.GroupVersion, w, r)
			return
		}
		if info.Verb != "watch" {
			l.inTurn(handler, info.Verb, w, r)
			return
		}
		release, problem := l.acquire(name)
		if problem != "" {
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(problem, retryWatch), l.codecs, v1alpha1.GroupVersion, w, r)
			return
		}
		defer release()
		l.observer.Watching(1)
		defer l.observer.Watching(-1)
		if l.limits.Slow > 0 {
			w = &timeoutWriter{wrapped: wrapped{w}, controller: http.NewResponseController(w), patience: l.limits.Slow, dropped: sync.OnceFunc(l.observer.Dropped)}
		}
		handler.ServeHTTP(w, r)
	})
}

// turnWeights are the weights of the verbs that take turns.
var turnWeights = map[string]int{"get": turn.Light, "list": turn.Heavy}

// inTurn serves a request, one that reads in its turn among those of all users: the
// requests in progress here read from the server in turns as well, among those of its other
// transports.
func (l *watchLimiter) inTurn(handler http.Handler, verb string, w http.ResponseWriter, r *http.Request) {
	weight, u := turnWeights[verb], user.Info(nil)
	if weight > 0 {
		u, _ = request.UserFrom(r.Context())
	}
	if u == nil {
		handler.ServeHTTP(w, r)
		return
	}
	t, err := l.turns.Begin(r.Context(), clientOf(u, r), weight)
	switch {
	case errors.Is(err, turn.ErrFull):
		l.observer.Refused(limitWaiting)
		responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(err.Error(), 1), l.codecs, v1alpha1.GroupVersion, w, r)
		return
	case err != nil:
		return // the client has gone
	}
	defer t.Done()
	handler.ServeHTTP(&lendingWriter{wrapped{w}, t}, r)
}

// clientOf returns the client that turns are for: the user, or the address of a client of a
// Trusting server.
func clientOf(u user.Info, r *http.Request) string {
	i, err := identityOf(u, r.RemoteAddr)
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = r.RemoteAddr
	}
	if err != nil { // the request is refused later
		i = identity.Identity{}
	}
	return i.Client(host)
}

// A lendingWriter lets others have the turn of a request while its client doesn't read the
// response.
type lendingWriter struct {
	wrapped

	turn *turn.Turn
}

// Write implements http.ResponseWriter.
func (w *lendingWriter) Write(data []byte) (int, error) { return w.turn.Write(w.ResponseWriter, data) }

// Flush implements http.Flusher.
func (w *lendingWriter) Flush() { w.turn.Flush(w.ResponseWriter) }

// A timeoutWriter limits the time of each write: a write that takes longer
// fails, and so does the response.
type timeoutWriter struct {
	wrapped

	controller *http.ResponseController
	patience   time.Duration
	dropped    func() // called when a write takes too long

	deadline time.Time // of the current write; zero between two events
	missed   bool      // the deadline before it passed
}

func (w *timeoutWriter) extend() {
	now := time.Now()
	w.missed = !w.deadline.IsZero() && now.After(w.deadline)
	w.deadline = now.Add(w.patience)
	if err := w.controller.SetWriteDeadline(w.deadline); errors.Is(err, http.ErrNotSupported) {
		return // then only the connection's own limits apply
	}
}

// Write implements http.ResponseWriter.
func (w *timeoutWriter) Write(data []byte) (int, error) {
	w.extend()
	n, err := w.ResponseWriter.Write(data)
	w.check(err)
	return n, err
}

// check counts the response as dropped if a write failed because it took too long.
// HTTP/2 only says that the stream is closed.
func (w *timeoutWriter) check(err error) {
	if err != nil && (w.missed || errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(w.deadline)) {
		w.dropped()
	}
}

// A wrapped response is part of another one that adds to it.
type wrapped struct{ http.ResponseWriter }

// Unwrap is called by http.ResponseController.
func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CloseNotify is called by Kubernetes' libraries.
func (w wrapped) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(http.CloseNotifier); ok { //nolint:staticcheck // Kubernetes' libraries use it
		return n.CloseNotify()
	}
	return nil
}

// Flush implements http.Flusher. There is no deadline between two events.
func (w *timeoutWriter) Flush() {
	w.extend()
	w.check(w.controller.Flush())
	w.deadline = time.Time{}
	_ = w.controller.SetWriteDeadline(time.Time{})
}
