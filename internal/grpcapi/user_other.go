//go:build !linux

package grpcapi

import (
	"errors"
	"net"

	"github.com/tko-orchestrator/tko/internal/authn"
)

// peerUser fails: only on Linux is the peer of a Unix socket determined.
func peerUser(net.Conn) (*authn.User, error) {
	return nil, errors.New("users of Unix sockets are known on Linux only: use --listen-unix= and TCP")
}
