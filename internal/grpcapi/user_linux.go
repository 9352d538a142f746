package grpcapi

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/tko-orchestrator/tko/internal/authn"
)

// peerUser returns the user that opened the other end of a Unix socket.
func peerUser(conn net.Conn) (*authn.User, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("the peer of a %T is unknown", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	return &authn.User{UID: cred.Uid, GID: cred.Gid}, nil
}
