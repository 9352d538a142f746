package kubeapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
)

// asOfParameter is the query parameter of gets and lists that names the moment as of which
// they read.
const asOfParameter = "asOf"

// withAsOf adds the moment as of which a request reads to its context. Requests that write
// or watch are refused if they have one: they can't be done in the past.
func withAsOf(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parameters := r.URL.Query()
		if !isOurs(r) || !parameters.Has(asOfParameter) {
			next.ServeHTTP(w, r)
			return
		}
		asOf, err := tko.ParseAsOf(parameters.Get(asOfParameter), time.Now().UTC())
		watch := parameters.Has("watch") && parameters.Get("watch") != "false" && parameters.Get("watch") != "0"
		switch {
		case r.Method != http.MethodGet || watch:
			badRequest(w, "parameter asOf: only gets and lists read the past: leave it out")
		case err != nil:
			badRequest(w, fmt.Sprintf("parameter asOf: %s", err))
		default:
			next.ServeHTTP(w, r.WithContext(tko.WithAsOf(r.Context(), asOf)))
		}
	})
}
