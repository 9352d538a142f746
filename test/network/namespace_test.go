//go:build linux

package network

import (
	"context"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// otherListener listens on the other machine. Its thread ends with its goroutine,
// because it is in another namespace.
func otherListener() (net.Listener, error) {
	runtime.LockOSThread()
	namespace, err := os.Open("/proc/" + os.Getenv("TKO_TEST_NETWORK_OTHER") + "/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	return new(net.ListenConfig).Listen(context.Background(), "tcp6", net.JoinHostPort(otherSix, "0"))
}
