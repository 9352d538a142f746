package kubeapi

import (
	"errors"
	"net"
	"sync"
)

// listeners combines several listeners, such as one for IPv6 and one for IPv4.
type listeners struct {
	all    []net.Listener
	conns  chan accepted
	ended  chan struct{}
	end    func() error
	accept sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// merge returns a listener that accepts the connections of all listeners and
// closes them together.
func merge(all []net.Listener) net.Listener {
	if len(all) == 1 {
		return all[0]
	}
	l := &listeners{all: all, conns: make(chan accepted), ended: make(chan struct{})}
	l.end = sync.OnceValue(func() error {
		close(l.ended)
		var errs []error
		for _, one := range all {
			errs = append(errs, one.Close())
		}
		l.accept.Wait()
		return errors.Join(errs...)
	})
	for _, one := range all {
		l.accept.Go(func() { l.acceptFrom(one) })
	}
	return l
}

func (l *listeners) acceptFrom(one net.Listener) {
	for {
		conn, err := one.Accept()
		select {
		case l.conns <- accepted{conn, err}:
		case <-l.ended:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept returns the next connection to any of the listeners.
func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.conns:
		return a.conn, a.err
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close closes all listeners.
func (l *listeners) Close() error { return l.end() }

// Addr returns the address of the first listener.
func (l *listeners) Addr() net.Addr { return l.all[0].Addr() }
