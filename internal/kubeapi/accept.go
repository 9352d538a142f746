package kubeapi

import (
	"context"
	"mime"
	"net/http"
	"strings"

	"github.com/tko-orchestrator/tko/api/v1alpha1"
)

type partialKey struct{}

const protobuf = "application/vnd.kubernetes.protobuf"

// withAccept notes in the context whether the client wants metadata or table
// rows: then packages need not be read. And who prefers protobuf, which our
// kinds don't have, gets the next that it accepts, as of custom resources.
func withAccept(next http.Handler) http.Handler {
	ours := "/apis/" + v1alpha1.GroupVersion.String() + "/"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && wantsPart(r) {
			r = r.WithContext(context.WithValue(r.Context(), partialKey{}, true))
		}
		if accept := r.Header.Get("Accept"); strings.HasPrefix(r.URL.Path, ours) && strings.Contains(accept, protobuf) {
			r = r.Clone(r.Context())
			r.Header.Set("Accept", withoutProtobuf(accept))
		}
		next.ServeHTTP(w, r)
	})
}

// withoutProtobuf is what a client accepts but for whole objects as protobuf,
// if that is something.
func withoutProtobuf(accept string) string {
	var kept []string
	for one := range strings.SplitSeq(accept, ",") {
		typ, parameters, err := mime.ParseMediaType(one)
		if err != nil || typ != protobuf || parameters["as"] != "" {
			kept = append(kept, one)
		}
	}
	if len(kept) == 0 {
		return accept
	}
	return strings.Join(kept, ",")
}

// partial says whether the answer is metadata or table rows only.
func partial(ctx context.Context) bool {
	is, _ := ctx.Value(partialKey{}).(bool)
	return is
}

// wantsPart says whether what a client prefers is certainly a part.
func wantsPart(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	typ, parameters, err := mime.ParseMediaType(first)
	if err != nil || parameters["g"] != "meta.k8s.io" || parameters["v"] != "v1" {
		return false
	}
	switch typ {
	case "application/json", "application/yaml", protobuf:
	default: // who gets another one than the first would get half an object
		return false
	}
	if _, weighed := parameters["q"]; weighed {
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
