package faults

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A link is a network connection between two components, which can fail. It forwards
// connections to the first of its ends that accepts them, beginning with another one each
// time.
type link struct {
	name     string
	address  string
	ends     []string
	listener net.Listener
	all      sync.WaitGroup

	mutex   sync.Mutex
	state   linkState
	changed chan struct{} // closed when the state changes
	open    map[net.Conn]struct{}
	count   int
	closed  bool
}

// A linkState says how a link fails. The zero value works.
type linkState struct {
	refuse bool          // connections are cut, and new ones are closed at once
	hole   bool          // nothing is forwarded, and both ends wait
	delay  time.Duration // of each part
}

func newLink(t *testing.T, name string, ends ...string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{name: name, address: listener.Addr().String(), ends: ends, listener: listener, changed: make(chan struct{}), open: map[net.Conn]struct{}{}}
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		if l.keep(conn) {
			l.all.Go(func() { l.serve(conn) })
		}
	}
}

// keep registers a connection, or closes it if the link refuses connections.
func (l *link) keep(conn net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.closed || l.state.refuse {
		reset(conn)
		return false
	}
	l.open[conn] = struct{}{}
	return true
}

// reset closes a connection at once, with unsent data.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (l *link) forget(conn net.Conn) {
	l.mutex.Lock()
	delete(l.open, conn)
	l.mutex.Unlock()
	_ = conn.Close()
}

func (l *link) serve(client net.Conn) {
	defer l.forget(client)
	if !l.pass() {
		return
	}
	server := l.dial()
	if server == nil {
		reset(client)
		return
	}
	if !l.keep(server) {
		return
	}
	defer l.forget(server)
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			l.forward(pair[0], pair[1])
			reset(pair[0])
			reset(pair[1])
		})
	}
	both.Wait()
}

func (l *link) dial() net.Conn {
	l.mutex.Lock()
	first := l.count
	l.count++
	l.mutex.Unlock()
	for i := range l.ends {
		conn, err := net.DialTimeout("tcp", l.ends[(first+i)%len(l.ends)], time.Second)
		if err == nil {
			return conn
		}
	}
	return nil
}

func (l *link) forward(from io.Reader, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !l.pass() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits as the state of the link demands. It returns false if the connection is cut.
func (l *link) pass() bool {
	for {
		l.mutex.Lock()
		state, changed, closed := l.state, l.changed, l.closed
		l.mutex.Unlock()
		switch {
		case closed || state.refuse:
			return false
		case state.hole:
			<-changed
			continue
		case state.delay > 0:
			time.Sleep(state.delay)
		}
		return true
	}
}

func (l *link) set(state linkState) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
	if state.refuse {
		l.cutLocked()
	}
}

// cut resets all connections. New ones are possible.
func (l *link) cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cutLocked()
}

func (l *link) cutLocked() {
	for conn := range l.open {
		reset(conn)
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mutex.Lock()
	l.closed = true
	close(l.changed)
	l.changed = make(chan struct{})
	l.cutLocked()
	l.mutex.Unlock()
	l.all.Wait()
}
