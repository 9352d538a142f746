package webapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A client of the HTTP API gets the warnings of its request, each once, in headers.
func TestWarningsAreHeaders(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(http.ResponseWriter){
		"with a status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"with a body":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("{}")) },
	} {
		handler := webapi.WithWarnings(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 2 {
				tko.Warn(r.Context(), "spec.later: unknown \"property\"\r\nX: y")
			}
			tko.Warn(r.Context(), strings.Repeat("long", 1000))
			respond(w)
			tko.Warn(r.Context(), "after the response began")
		}))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
		got := recorder.Result().Header.Values("Warning")
		if len(got) != 2 || len(got[1]) > 600 {
			t.Fatalf("%s: the warnings are %q", name, got)
		}
		if diff := cmp.Diff(`299 - "spec.later: unknown \"property\" X: y"`, got[0]); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}
