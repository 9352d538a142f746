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

// withAccept records in the context whether the client wants only metadata or
// table rows: packages are then not read. If a client prefers protobuf, which
// our kinds don't have, it gets the next type that it accepts, as for custom
// resources.
func withAccept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && wantsPart(r) {
			r = r.WithContext(context.WithValue(r.Context(), partialKey{}, true))
		}
		if accept := r.Header.Get("Accept"); isOurs(r) && strings.Contains(accept, protobuf) {
			r = r.Clone(r.Context())
			r.Header.Set("Accept", withoutProtobuf(accept))
		}
		next.ServeHTTP(w, r)
	})
}

var ours = "/apis/" + v1alpha1.GroupVersion.String() + "/"

// isOurs reports whether a request is for one of our kinds.
func isOurs(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, ours) }

// withoutProtobuf removes protobuf for whole objects from an Accept header, if
// other types remain.
func withoutProtobuf(accept string) string {
	var accepted []string
	for one := range strings.SplitSeq(accept, ",") {
		typ, parameters, err := mime.ParseMediaType(one)
		if err != nil || typ != protobuf || parameters["as"] != "" {
			accepted = append(accepted, one)
		}
	}
	if len(accepted) == 0 {
		return accept
	}
	return strings.Join(accepted, ",")
}

// partial reports whether the response has only metadata or table rows.
func partial(ctx context.Context) bool {
	is, _ := ctx.Value(partialKey{}).(bool)
	return is
}

// wantsPart reports whether the type that a client prefers is certainly
// partial.
func wantsPart(r *http.Request) bool {
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	typ, parameters, err := mime.ParseMediaType(first)
	if err != nil || parameters["g"] != "meta.k8s.io" || parameters["v"] != "v1" {
		return false
	}
	switch typ {
	case "application/json", "application/yaml", protobuf:
	default: // the response may have another type, with whole objects
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
