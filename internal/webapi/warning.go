package webapi

import (
	"mime"
	"net/http"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// WithWarnings adds a header Warning for each warning that a request has caused until the response
// begins: code 299, as in RFC 7234, and the text in quotes.
func WithWarnings(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, warnings := tko.CollectWarnings(r.Context())
		handler.ServeHTTP(&warningWriter{ResponseWriter: w, warnings: warnings}, r.WithContext(ctx))
	})
}

// A warningWriter writes the headers when the response begins.
type warningWriter struct {
	http.ResponseWriter

	warnings func() []string
	began    bool
}

// Unwrap is called by http.ResponseController.
func (w *warningWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader adds the headers to the first response.
func (w *warningWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

// Write begins the response, if it hasn't begun.
func (w *warningWriter) Write(data []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(data)
}

func (w *warningWriter) begin() {
	if w.began {
		return
	}
	w.began = true
	for _, text := range w.warnings() {
		w.Header().Add("Warning", `299 - "`+headerText(text)+`"`)
	}
}

// headerText returns a text for a quoted string in a header.
func headerText(text string) string {
	return mime.QEncoding.Encode("utf-8", strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable.Text(text)))
}
