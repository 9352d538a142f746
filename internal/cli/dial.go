package cli

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/tko-orchestrator/tko/client"
)

// dial gets ready to talk to a server; the connection is made when needed.
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

// dialLocal connects to this machine, IPv6 first, whatever names it knows.
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
