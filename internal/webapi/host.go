package webapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// WithHosts refuses requests for a host name that is not allowed. A malicious
// web page can make a browser send requests to this server under the page's own
// host name, by changing the address of that name to the server's (DNS
// rebinding), and read the responses. Such requests have the page's name in
// their Host header.
//
// Allowed are names (*.example.com allows all names below it, * all names), and
// hosts that such a page can't have: IP addresses, localhost, names without a
// dot, and names of services in a Kubernetes cluster.
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

// safe are suffixes that no public domain name has.
var safe = []string{".localhost", ".svc", ".svc.cluster.local"}

func allowed(host string, names []string) bool {
	if host == "" { // HTTP/1.0, which browsers don't use
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
