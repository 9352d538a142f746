package webapi

import (
	"net/http"
	"time"
)

// paths are those that have metrics of their own.
var paths = map[string]bool{
	"/api/about": true, "/api/template": true, "/api/site": true, "/api/deployment": true,
	"/api/template/list": true, "/api/site/list": true, "/api/deployment/list": true, "/api/plugin/list": true,
	"/api/v1/me": true, "/api/v1/stream": true, "/api/v1/actions": true, "/auth/session": true,
	"/api/v1/openapi.json": true, "/auth/login": true, "/auth/callback": true, "/auth/logins": true,
	"/api/v1/template": true, "/api/v1/site": true, "/api/v1/deployment": true, "/api/v1/plugin": true,
	"/api/v1/template/list": true, "/api/v1/site/list": true, "/api/v1/deployment/list": true, "/api/v1/plugin/list": true,
	"/api/v1/template/count": true, "/api/v1/site/count": true, "/api/v1/deployment/count": true, "/api/v1/plugin/count": true,
}

// WithObserver calls observe at the end of each request, with its path (other for
// unknown ones) and status.
func WithObserver(handler http.Handler, observe func(path string, status int, took time.Duration)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		observed := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			path := r.URL.Path
			if !paths[path] {
				path = "other"
			}
			observe(path, observed.status, time.Since(began))
		}()
		handler.ServeHTTP(observed, r)
	})
}

// A statusWriter notes the status of a response.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// Unwrap is called by http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
