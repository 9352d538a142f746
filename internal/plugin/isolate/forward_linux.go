package isolate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxForwarded is the most connections of a program at a time.
const maxForwarded = 64

// drainLimit bounds the time in which a program's last bytes reach their server
// after the program has ended.
const drainLimit = 5 * time.Second

// forwarding returns a socket for a launcher, which passes listeners on the
// addresses of to, in the order of their text. Connections to them are
// forwarded until stop is called, which is after the end of the program: what it
// sent before is delivered, within drainLimit.
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
			working.Go(func() { forward(ctx, listener, to[address], drainLimit) })
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

// forward forwards connections until ctx is done, and those that were made until
// then, whose bytes it delivers within a limit.
func forward(ctx context.Context, listener net.Listener, to string, limit time.Duration) {
	defer func() { _ = listener.Close() }()
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	slots := make(chan struct{}, maxForwarded)
	accept := tcp.Accept
	for {
		conn, err := accept()
		if err != nil && ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			accept = func() (net.Conn, error) { return waiting(tcp) }
			continue
		}
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
			relay(ctx, conn, to, limit)
		})
	}
}

// waiting returns a connection that was made and not accepted. It does not wait
// for one, and returns an error if there is none.
func waiting(listener *net.TCPListener) (net.Conn, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, acceptErr := -1, error(nil)
	if err := raw.Control(func(l uintptr) {
		fd, _, acceptErr = unix.Accept4(int(l), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}); err != nil {
		return nil, err
	}
	if acceptErr != nil {
		return nil, acceptErr
	}
	file := os.NewFile(uintptr(fd), "connection")
	defer func() { _ = file.Close() }()
	return net.FileConn(file)
}

// relay copies between two connections until both directions have ended, or a
// limit has passed since ctx was done.
func relay(ctx context.Context, conn net.Conn, to string, limit time.Duration) {
	defer func() { _ = conn.Close() }()
	draining, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(limit, cancel) })
	defer stop()
	other, err := (&net.Dialer{}).DialContext(draining, "tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = other.Close() }()
	ended := context.AfterFunc(draining, func() { _, _ = conn.Close(), other.Close() })
	defer ended()
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
