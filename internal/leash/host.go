package leash

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// defaultPorts are the ports of URLs without one.
var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22", "oci": "443", "postgres": "5432", "postgresql": "5432"}

// HostOf returns the server of a URL: SCHEME://HOST:PORT in lower case, without the port if
// it is the default. USER@HOST:PATH is one of ssh, and another text without a scheme one of
// https. It returns "" for a URL without a host.
func HostOf(address string) string {
	address = strings.TrimSpace(address)
	if !strings.Contains(address, "://") {
		if user, rest, ok := strings.Cut(address, "@"); ok && !strings.ContainsAny(user, "/:") {
			host, _, _ := strings.Cut(rest, ":")
			address = "ssh://" + host
		} else {
			address = "https://" + address
		}
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return ""
	}
	scheme, host, port := strings.ToLower(u.Scheme), canonical(u.Hostname()), u.Port()
	if port == "" || port == defaultPorts[scheme] {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return scheme + "://" + host
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// canonical returns a name in lower case without the last dot, and an address in its
// shortest form.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().String()
	}
	return host
}

// splitPort splits NAME[:PORT]; an address of IPv6 with a port has brackets.
func splitPort(text string) (name, port string) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		return canonical(host), port
	}
	return canonical(strings.Trim(text, "[]")), ""
}

// sameHost reports whether a declared host is that of a server, as HostOf returns it. Without
// a port, all ports are declared.
func sameHost(declared, server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	name, port := splitPort(declared)
	has := u.Port()
	if has == "" {
		has = defaultPorts[u.Scheme]
	}
	if port != "" && port != has {
		return false
	}
	host := u.Hostname()
	if suffix, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return host == name
}
