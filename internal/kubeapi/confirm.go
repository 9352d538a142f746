package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tko-orchestrator/tko"
)

// confirmParameter is the query parameter of a request that changes objects, which
// confirms their number: of a deletion, descendants and the objects that lose their
// template or site included.
const confirmParameter = "confirm"

// withConfirmation adds the confirmed number of a request to its context.
func withConfirmation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || !isOurs(r) || !r.URL.Query().Has(confirmParameter) {
			next.ServeHTTP(w, r)
			return
		}
		text := r.URL.Query().Get(confirmParameter)
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 {
			badRequest(w, fmt.Sprintf("parameter confirm %.40q: not a number of objects: use the number of objects to change, at least 1", text))
			return
		}
		next.ServeHTTP(w, r.WithContext(tko.WithConfirmation(r.Context(), count)))
	})
}

// badRequest refuses a request.
func badRequest(w http.ResponseWriter, message string) {
	status := apierrors.NewBadRequest(message).Status()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // the client may have disconnected
}
