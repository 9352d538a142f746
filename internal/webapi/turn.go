package webapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/turn"
)

// fair gives the requests of clients that read lists and entities their turns. Requests that
// wait for changes, and those that change something, don't take turns: they would hold one
// without working.
func fair(turns *turn.Queue, client string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !takesTurns(r.URL.Path) {
		next.ServeHTTP(w, r)
		return
	}
	t, err := turns.Begin(r.Context(), client, turn.Heavy)
	switch {
	case errors.Is(err, turn.ErrFull):
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusTooManyRequests, errorBody{err.Error()})
		return
	case err != nil:
		return // the client has gone
	}
	defer t.Done()
	next.ServeHTTP(lendingWriter{w, t}, r)
}

// waits are the reads that wait: for changes, or for a meta-scheduler.
var waits = []string{"/api/v1/stream", "/api/site/diff"}

// takesTurns reports whether requests of a path take turns.
func takesTurns(path string) bool {
	return strings.HasPrefix(path, "/api/") && !slices.Contains(waits, path)
}

// A lendingWriter lets others have the turn of a request while its client doesn't read the
// response.
type lendingWriter struct {
	http.ResponseWriter

	turn *turn.Turn
}

// Unwrap is called by http.ResponseController.
func (w lendingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes a part of the response.
func (w lendingWriter) Write(data []byte) (int, error) { return w.turn.Write(w.ResponseWriter, data) }

// Flush sends what was written.
func (w lendingWriter) Flush() { w.turn.Flush(w.ResponseWriter) }
