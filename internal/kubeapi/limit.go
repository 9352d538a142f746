package kubeapi

import (
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
)

// WatchLimits are how many watches are served at once, and how long a watcher may
// take nothing of what it is sent: then its connection or stream is ended, and it
// watches again from what it got last. 0 is no limit.
type WatchLimits struct {
	User  int // of one user
	Total int
	Slow  time.Duration
}

// retryWatch is how many seconds a client waits that was refused a watch.
const retryWatch = 5

// A watchLimiter counts watches.
type watchLimiter struct {
	limits WatchLimits
	codecs runtime.NegotiatedSerializer // of errors

	mutex sync.Mutex
	total int
	users map[string]int
}

func newWatchLimiter(limits WatchLimits, codecs runtime.NegotiatedSerializer) *watchLimiter {
	return &watchLimiter{limits: limits, codecs: codecs, users: map[string]int{}}
}

// take takes a watch for a user. If there are too many, problem says so.
func (l *watchLimiter) take(user string) (release func(), problem string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.limits.User > 0 && l.users[user] >= l.limits.User:
		return nil, "too many watches of one user are under way (--streams-per-client): end some"
	case l.limits.Total > 0 && l.total >= l.limits.Total:
		return nil, "too many watches are under way (--streams): try again later"
	}
	l.total++
	l.users[user]++
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.total--
		if l.users[user]--; l.users[user] == 0 {
			delete(l.users, user)
		}
	}, ""
}

// limit limits the watches of a handler. Who the user is must be known.
func (l *watchLimiter) limit(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "watch" {
			handler.ServeHTTP(w, r)
			return
		}
		name := ""
		if user, ok := request.UserFrom(r.Context()); ok {
			name = user.GetName()
		}
		release, problem := l.take(name)
		if problem != "" {
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(problem, retryWatch), l.codecs, v1alpha1.GroupVersion, w, r)
			return
		}
		defer release()
		if l.limits.Slow > 0 {
			w = &patientWriter{ResponseWriter: w, controller: http.NewResponseController(w), patience: l.limits.Slow}
		}
		handler.ServeHTTP(w, r)
	})
}

// A patientWriter gives each write so much time: one that takes longer fails,
// and with it the response.
type patientWriter struct {
	http.ResponseWriter

	controller *http.ResponseController
	patience   time.Duration
}

// Unwrap is for what http.ResponseController does.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) extend() {
	if err := w.controller.SetWriteDeadline(time.Now().Add(w.patience)); errors.Is(err, http.ErrNotSupported) {
		return // then the connection's own limits are all there is
	}
}

// Write implements http.ResponseWriter.
func (w *patientWriter) Write(data []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(data)
}

// CloseNotify implements what Kubernetes' libraries expect of writers.
func (w *patientWriter) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(http.CloseNotifier); ok { //nolint:staticcheck // they do
		return n.CloseNotify()
	}
	return nil
}

// Flush implements http.Flusher. Between two events there is no deadline.
func (w *patientWriter) Flush() {
	w.extend()
	_ = w.controller.Flush()
	_ = w.controller.SetWriteDeadline(time.Time{})
}
