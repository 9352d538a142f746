package isolate

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// maxForwarded is the most connections of a program at a time.
const maxForwarded = 64

// forwarding returns a socket for a launcher, which passes listeners on the
// addresses of to, in the order of their text. Connections to them are
// forwarded until stop is called.
func forwarding(ctx context.Context, to map[string]string) (theirs *os.File, stop func(), err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket for the plugin's connections: %w", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "launcher")
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), "server")
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	var addresses []string
	for address := range to {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	working.Go(func() {
		for _, address := range addresses {
			listener, err := receive(ours)
			if err != nil {
				return
			}
			working.Go(func() { forward(ctx, listener, to[address]) })
		}
	})
	return theirs, func() {
		cancel()
		_ = ours.Close()
		working.Wait()
	}, nil
}

// receive receives a listener.
func receive(from *os.File) (net.Listener, error) {
	conn, err := from.SyscallConn()
	if err != nil {
		return nil, err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	var n int
	var readErr error
	if err := conn.Read(func(fd uintptr) bool {
		_, n, _, _, readErr = unix.Recvmsg(int(fd), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
		return readErr != unix.EAGAIN
	}); err != nil {
		return nil, err
	}
	if readErr != nil {
		return nil, readErr
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return nil, io.EOF
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, io.EOF
	}
	file := os.NewFile(uintptr(fds[0]), "listener")
	defer func() { _ = file.Close() }()
	return net.FileListener(file)
}

// forward forwards connections until ctx is done.
func forward(ctx context.Context, listener net.Listener, to string) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	defer func() { _ = listener.Close() }()
	var serving sync.WaitGroup
	defer serving.Wait()
	slots := make(chan struct{}, maxForwarded)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			relay(ctx, conn, to)
		})
	}
}

// relay copies between two connections until both directions have ended.
func relay(ctx context.Context, conn net.Conn, to string) {
	defer func() { _ = conn.Close() }()
	other, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = conn.Close(), other.Close() })
	defer stop()
	var copying sync.WaitGroup
	for _, pair := range [][2]net.Conn{{conn, other}, {other, conn}} {
		copying.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	copying.Wait()
}
