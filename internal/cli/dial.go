package cli

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/tko-orchestrator/tko/client"
)

// dial returns a client of a server; it connects at the first call.
func dial(t target) (server, error) {
	options := client.Options{Address: t.address, Network: t.network, PackageFormat: t.format}
	if t.local {
		options.Dialer = dialLocal
	}
	c, err := client.Dial(options)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialLocal connects to the loopback addresses, IPv6 first, without resolving
// localhost.
func dialLocal(ctx context.Context, address string) (net.Conn, error) {
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
