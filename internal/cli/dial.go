package cli

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko/client"
)

// dial returns a client of a server; it connects at the first call.
func dial(t target) (server, error) {
	options := client.Options{Address: t.address, Network: t.network, PackageFormat: t.format, TLS: t.tls}
	if t.token != nil {
		options.Token = t.token.get
	}
	switch {
	case t.socket != "":
		options.Address = unixScheme + t.socket
		options.Dialer = func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", t.socket)
		}
	case t.local && t.tls != nil:
		options.Dialer = dialLoopback
	case t.local:
		options.Dialer = dialLocal
	}
	c, err := client.Dial(options)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialLocal connects to the server of this machine: over its Unix socket, if there
// is one, so that the server knows the user, else as dialLoopback.
func dialLocal(ctx context.Context, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, dir := range client.SocketDirs() {
		if conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, client.SocketName(port))); err == nil {
			return conn, nil
		}
	}
	return dialLoopback(ctx, address)
}

// dialLoopback connects to the loopback addresses, IPv6 first, without resolving
// localhost.
func dialLoopback(ctx context.Context, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, host := range []string{"::1", "127.0.0.1"} {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err.Error())
	}
	return nil, errors.New(strings.Join(failed, "; "))
}
