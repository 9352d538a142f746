package kubeapi

import (
	"net/http"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// An Observer counts requests, for metrics. Its methods are called by many
// goroutines, and must return at once.
type Observer interface {
	// Requested is called at the end of each request for a resource, with its verb
	// and resource.
	Requested(method string, status int, took time.Duration)
	// Refused is called when a watch exceeds a limit, one of LimitNames.
	Refused(limit string)
	// Watching is called when a watch begins (1) and ends (-1).
	Watching(change int)
	// Dropped is called when a watch is closed because its client doesn't read.
	Dropped()
}

// LimitNames returns the names of the limits of watches.
func LimitNames() []string { return []string{limitUser, limitTotal, limitRate, limitWaiting} }

const (
	limitUser    = "client"
	limitTotal   = "total"
	limitRate    = "rate"    // of requests of a user
	limitWaiting = "waiting" // of requests of a user that wait for their turns
)

// noObserver is the observer of servers without one.
type noObserver struct{}

func (noObserver) Requested(string, int, time.Duration) {}
func (noObserver) Refused(string)                       {}
func (noObserver) Watching(int)                         {}
func (noObserver) Dropped()                             {}

// verbs are those that have metrics of their own.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// methodOf returns the method of a request for metrics: one of a closed set.
func methodOf(info *request.RequestInfo) string {
	if info == nil || !info.IsResourceRequest || !slices.Contains(verbs, info.Verb) {
		return "other"
	}
	for _, k := range kinds() {
		switch {
		case k.resource != info.Resource:
		case info.Subresource == "":
			return info.Verb + " " + k.resource
		case info.Subresource == statusSubresource, info.Subresource == approvalSubresource:
			return info.Verb + " " + k.resource + "/" + info.Subresource
		}
	}
	return "other"
}

// observe counts the requests of a handler, also those that are refused before they
// reach a resource.
func observe(handler http.Handler, infos request.RequestInfoResolver, o Observer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			info = nil
		}
		observed := &statusWriter{wrapped: wrapped{w}, status: http.StatusOK}
		defer func() { o.Requested(methodOf(info), observed.status, time.Since(began)) }()
		handler.ServeHTTP(observed, r)
	})
}

// A statusWriter notes the status of a response.
type statusWriter struct {
	wrapped

	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
