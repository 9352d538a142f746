package kubeapi

import (
	"context"
	"mime"
	"net/http"
	"strings"
)

type partialKey struct{}

// withAccept notes in the context whether the client wants metadata or table
// rows: then packages need not be read.
func withAccept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && wantsPart(r) {
			r = r.WithContext(context.WithValue(r.Context(), partialKey{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

// partial says whether the answer is metadata or table rows only.
func partial(ctx context.Context) bool {
	is, _ := ctx.Value(partialKey{}).(bool)
	return is
}

func wantsPart(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	_, parameters, err := mime.ParseMediaType(first)
	if err != nil || parameters["g"] != "meta.k8s.io" || parameters["v"] != "v1" {
		return false
	}
	switch parameters["as"] {
	case "Table":
		return r.URL.Query().Get("includeObject") != "Object"
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}
