package webapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/webapi"
)

func TestForeignHostNamesAreRefused(t *testing.T) {
	t.Parallel()
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	for host, test := range map[string]struct {
		why   string
		names []string
		ok    bool
	}{
		"evil.example":               {"its owner may let the name lead here", nil, false},
		"evil.example:50051":         {"with a port, too", nil, false},
		"localhost.evil.example":     {"only the end counts", nil, false},
		"127.0.0.1.evil.example":     {"this is no address", nil, false},
		"evil.example.":              {"the root doesn't help", nil, false},
		"localhost":                  {"loopback", nil, true},
		"LOCALHOST:50051":            {"names have no case", nil, true},
		"tko.localhost":              {"browsers resolve it to loopback", nil, true},
		"127.0.0.1:50051":            {"an address is none's name", nil, true},
		"[::1]:50051":                {"the same", nil, true},
		"[::1]":                      {"without a port", nil, true},
		"10.1.2.3":                   {"any address", nil, true},
		"tko-data:50051":             {"no domain is without a dot", nil, true},
		"tko-data.tko.svc":           {"a service of a cluster", nil, true},
		"tko-data.svc.cluster.local": {"the same", nil, true},
		"tko.corp.example":           {"configured", []string{"tko.corp.example"}, true},
		"other.corp.example":         {"another", []string{"tko.corp.example"}, false},
		"a.b.corp.example":           {"below what is configured", []string{"*.corp.example"}, true},
		"evilcorp.example":           {"not below", []string{"*.corp.example"}, false},
		"anything.example":           {"the check is off", []string{"*"}, true},
		"":                           {"HTTP/1.0", nil, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/about", nil)
		r.Host = host
		w := httptest.NewRecorder()
		webapi.WithHosts(served, test.names).ServeHTTP(w, r)
		if ok := w.Code == http.StatusOK; ok != test.ok {
			t.Errorf("%q with %v: status %d, want it to be served: %t (%s)", host, test.names, w.Code, test.ok, test.why)
		}
		if !test.ok && (strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "--web-hosts")) {
			t.Errorf("%q: the response is %s", host, w.Body)
		}
	}
}
