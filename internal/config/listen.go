package config

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/tko-orchestrator/tko"
)

// Listen opens the sockets of an address (host:port) on an IP stack: dual is IPv6
// and, where that doesn't cover it, IPv4. The host localhost is the loopback
// interface; * or an empty host is all interfaces. With port 0 all sockets get the
// same free port. Listen returns at least one socket, IPv6 first, or an error; it
// leaves out a stack that the machine doesn't have.
func Listen(ctx context.Context, address, stack string) ([]net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "listen on %q: use host:port", address)
	}
	const tries = 20 // with port 0, to find a port that is free on both stacks
	for try := 1; ; try++ {
		listeners, err := listen(ctx, binds(host, stack), port)
		if err == nil {
			return listeners, nil
		}
		if port != "0" || try == tries {
			return nil, fmt.Errorf("listen on %q: %w: is another server using it? Choose another address with the --listen flags", address, err)
		}
	}
}

type bind struct{ network, host string }

func binds(host, stack string) []bind {
	var six, four bind
	switch host {
	case "localhost":
		six, four = bind{"tcp6", "::1"}, bind{"tcp4", "127.0.0.1"}
	case "", "*", "::":
		six, four = bind{"tcp6", "::"}, bind{"tcp4", "0.0.0.0"}
	default:
		return []bind{{"tcp", host}}
	}
	switch stack {
	case "ipv6":
		return []bind{six}
	case "ipv4":
		return []bind{four}
	default:
		return []bind{six, four}
	}
}

func listen(ctx context.Context, binds []bind, port string) ([]net.Listener, error) {
	var (
		listeners []net.Listener
		failures  []error
		inUse     bool
		config    net.ListenConfig
	)
	for _, b := range binds {
		l, err := config.Listen(ctx, b.network, net.JoinHostPort(b.host, port))
		if err != nil {
			failures = append(failures, err)
			inUse = inUse || isInUse(err)
			continue
		}
		listeners = append(listeners, l)
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			port = strconv.Itoa(tcp.Port)
		}
	}
	if len(listeners) == 0 || inUse {
		for _, l := range listeners {
			_ = l.Close()
		}
		return nil, errors.Join(failures...)
	}
	return listeners, nil
}
