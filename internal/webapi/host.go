package webapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// WithHosts refuses requests that name a host that is not allowed. A web page of
// somebody else can make a browser send requests here under a name of its own,
// whose address it changes to ours (DNS rebinding), and read the responses:
// such requests have that name in their Host header.
//
// Allowed are the given names (*.example.com is every name below, * is any), and
// what such a page can't have: IP addresses, localhost, names without a dot, and
// names of services in a Kubernetes cluster.
func WithHosts(handler http.Handler, names []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r.Host, names) {
			err := tko.Errorf(tko.ErrDenied, "the host %.100q is not one of this server's: use its IP address, or allow the name with --web-hosts", r.Host)
			writeJSON(w, http.StatusForbidden, errorBody{err.Error()})
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// safe are the ends of names that no public domain has.
var safe = []string{".localhost", ".svc", ".svc.cluster.local"}

func allowed(host string, names []string) bool {
	if host == "" { // HTTP/1.0, which no browser speaks
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	address, _, _ := strings.Cut(host, "%") // a zone
	if net.ParseIP(address) != nil || host != "" && !strings.Contains(host, ".") {
		return true
	}
	for _, end := range safe {
		if strings.HasSuffix(host, end) {
			return true
		}
	}
	for _, name := range names {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if name == "*" || name == host {
			return true
		}
		if below, ok := strings.CutPrefix(name, "*"); ok && strings.HasPrefix(below, ".") && strings.HasSuffix(host, below) {
			return true
		}
	}
	return false
}
