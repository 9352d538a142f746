package kubeapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// An authority is a certificate authority that is known later.
type authority struct {
	dynamiccertificates.CAContentProvider

	known *bool
}

func (a authority) CurrentCABundleContent() []byte {
	if *a.known {
		return []byte("a certificate")
	}
	return nil
}

// Users that a front proxy passes on before the server knows the proxies get an error that asks them to try again:
// they must not become anonymous users, who may do nothing.
func TestRequestsThroughUnknownProxiesAreTriedAgain(t *testing.T) {
	t.Parallel()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	var headers []string
	authorityKnown := false
	config := &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders:   headerrequest.StringSliceProviderFunc(func() []string { return headers }),
		CAContentProvider: authority{known: &authorityKnown},
	}
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	handler := awaitProxies(served, config, serializer.NewCodecFactory(scheme))
	ask := func(what string, want int, header http.Header) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/tko.nephio.org/v1alpha1/sites", nil)
		r.Header = header
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", what, w.Code, want)
		}
		return w
	}
	user := http.Header{"X-Remote-User": {"ed"}}
	ask("without a proxy", http.StatusNoContent, http.Header{"Authorization": {"Bearer t"}})
	refused := ask("a proxy, at first", http.StatusServiceUnavailable, user)
	var status metav1.Status
	if err := json.NewDecoder(refused.Body).Decode(&status); err != nil || status.Reason != metav1.StatusReasonServiceUnavailable || refused.Header().Get("Retry-After") != "1" {
		t.Errorf("%v: %+v, with %v", err, status, refused.Header())
	}
	headers = []string{"X-Remote-User"}
	ask("without its authority", http.StatusServiceUnavailable, user)
	authorityKnown = true
	ask("a known proxy", http.StatusNoContent, user)
	handler = awaitProxies(served, nil, serializer.NewCodecFactory(scheme))
	ask("a server without front proxies", http.StatusNoContent, user)
}
