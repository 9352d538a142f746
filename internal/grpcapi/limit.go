package grpcapi

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// Limits limit the number of concurrent long-lived calls: watches, lists and
// waits for work. Each uses memory as long as its client likes. 0 is the
// default; a negative number is no limit.
type Limits struct {
	Connection int // for each connection
	Client     int // for each client: see clientOf
	Total      int

	Rate  float64 // calls per second of each client, and failed ones of each address, with bursts of Burst
	Burst int
}

// Defaults of Limits.
const (
	DefaultConnectionStreams = 250
	DefaultClientStreams     = 1000
	DefaultStreams           = 5000
	DefaultRate              = 20_000
	DefaultBurst             = 40_000
)

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		limit     *int
		otherwise int
	}{{&l.Connection, DefaultConnectionStreams}, {&l.Client, DefaultClientStreams}, {&l.Total, DefaultStreams}} {
		if *d.limit == 0 {
			*d.limit = d.otherwise
		}
	}
	if l.Rate == 0 {
		l.Rate = DefaultRate
	}
	if l.Burst == 0 {
		l.Burst = max(DefaultBurst, int(2*l.Rate))
	}
	return l
}

// clientOf returns the client of a call that limits are for.
func clientOf(ctx context.Context, caller identity.Identity) string {
	return caller.Client(peerHost(ctx))
}

// inProcess reports whether a call is from the server's own process, which has no
// limits.
func inProcess(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	return !ok || p.Addr == nil || p.Addr.Network() == "bufconn"
}

// admit returns an error if too many calls from an address failed to authenticate.
// The caller reports a failure to failed.
func (l *limiter) admit(ctx context.Context) error {
	if inProcess(ctx) || l.limits.Rate < 0 || l.rates.Allowed(failuresOf(ctx)) {
		return nil
	}
	l.refused(limitFailures)
	return status.Errorf(codes.ResourceExhausted, "more than %g calls per second from this address failed to authenticate, which is the limit (--requests-per-client): check the credentials, wait, and try again", l.limits.Rate)
}

// failed counts a call that failed to authenticate.
func (l *limiter) failed(ctx context.Context) {
	if !inProcess(ctx) && l.limits.Rate >= 0 {
		l.rates.Allow(failuresOf(ctx))
	}
}

func failuresOf(ctx context.Context) string { return "failures of " + peerHost(ctx) }

// allow returns an error if a client makes more calls per second than it may.
func (l *limiter) allow(ctx context.Context, caller identity.Identity) error {
	if inProcess(ctx) || l.limits.Rate < 0 || l.rates.Allow(clientOf(ctx, caller)) {
		return nil
	}
	l.refused(limitRate)
	return status.Errorf(codes.ResourceExhausted, "this client makes more than %g calls per second, which is the limit (--requests-per-client): wait, and try again", l.limits.Rate)
}

// A limiter counts long-lived calls.
type limiter struct {
	limits  Limits
	refused func(limit string)
	rates   *identity.Rates // by clientOf and failuresOf
	turns   *turn.Queue
	weights map[string]int // of turns, by method

	mutex   sync.Mutex
	total   int
	clients map[string]int // by clientOf
}

func newLimiter(limits Limits, turns *turn.Queue) *limiter {
	return &limiter{limits: limits, turns: turns, weights: turnWeights(), refused: func(string) {}, clients: map[string]int{}, rates: identity.NewRates(limits.Rate, limits.Burst)}
}

// A slot counts one long-lived call. It is released when the call has ended and
// its client has read all messages, or is disconnected.
type slot struct {
	limiter *limiter
	client  string
	conn    *connection // nil if its end can't be observed
	uses    atomic.Int32
	once    sync.Once
}

// take returns a slot for a call, which the caller releases. It is nil for
// calls from the server's own process.
func (l *limiter) take(ctx context.Context, caller identity.Identity) (*slot, error) {
	if inProcess(ctx) {
		return nil, nil //nolint:nilnil // no slot is needed
	}
	s := &slot{limiter: l, client: clientOf(ctx, caller)}
	s.uses.Store(1)
	p, _ := peer.FromContext(ctx)
	if a, ok := p.Addr.(connectionAddr); ok {
		s.conn = a.connection
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case s.conn != nil && l.limits.Connection > 0 && len(s.conn.held) >= l.limits.Connection:
		l.refused(limitConnection)
		return nil, exhausted("this connection has %d watches, lists and waits for work under way, which is the limit (--streams-per-connection): end some, read what was sent, or open another connection", len(s.conn.held))
	case l.limits.Client > 0 && l.clients[s.client] >= l.limits.Client:
		l.refused(limitClient)
		return nil, exhausted("this client has %d watches, lists and waits for work under way, which is the limit (--streams-per-client): end some, or read what was sent", l.clients[s.client])
	case l.limits.Total > 0 && l.total >= l.limits.Total:
		l.refused(limitTotal)
		return nil, exhausted("the server has %d watches, lists and waits for work under way, which is the limit (--streams): try again later, or at another server", l.total)
	}
	l.total++
	l.clients[s.client]++
	if s.conn != nil {
		s.conn.add(s)
	}
	return s, nil
}

func exhausted(format string, n int) error { return status.Errorf(codes.ResourceExhausted, format, n) }

// retain adds a use of a slot, which drop ends.
func (s *slot) retain() { s.uses.Add(1) }

// drop ends a use of a slot, and releases it if that was the last one.
func (s *slot) drop() {
	if s.uses.Add(-1) <= 0 {
		s.release()
	}
}

// release releases a slot. Only the first call has an effect.
func (s *slot) release() {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.limiter.mutex.Lock()
		defer s.limiter.mutex.Unlock()
		s.limiter.total--
		s.limiter.clients[s.client]--
		if s.limiter.clients[s.client] == 0 {
			delete(s.limiter.clients, s.client)
		}
		if s.conn != nil {
			delete(s.conn.held, s)
		}
	})
}

type slotKey struct{}

// slotOf returns the slot of a call, or nil.
func slotOf(ctx context.Context) *slot {
	s, _ := ctx.Value(slotKey{}).(*slot)
	return s
}

// Listen returns a listener whose connections the server can distinguish, so
// that it can limit the calls of each of them, and observes their end.
func Listen(l net.Listener) net.Listener { return countingListener{l} }

type countingListener struct{ net.Listener }

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn}, nil
}

// A connection has the slots of its calls.
type connection struct {
	net.Conn

	closed  atomic.Bool
	limiter atomic.Pointer[limiter] // nil before the first slot; its mutex guards the fields below
	held    map[*slot]struct{}
}

// A connectionAddr is the address of a client, with its connection.
type connectionAddr struct {
	net.Addr

	connection *connection
}

// RemoteAddr returns the client's address, a connectionAddr.
func (c *connection) RemoteAddr() net.Addr { return connectionAddr{c.Conn.RemoteAddr(), c} }

// add adds a slot. The caller has locked the limiter.
func (c *connection) add(s *slot) {
	if c.held == nil {
		c.held = map[*slot]struct{}{}
		c.limiter.Store(s.limiter)
	}
	c.held[s] = struct{}{}
}

// Close also releases the slots of the connection.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.closed.Store(true)
	l := c.limiter.Load()
	if l == nil {
		return err
	}
	l.mutex.Lock()
	held := slices.Collect(maps.Keys(c.held))
	l.mutex.Unlock()
	for _, s := range held {
		s.release()
	}
	return err
}

// ends reports whether the end of the slot's client can be observed, and it is
// still connected.
func (s *slot) ends() bool { return s.conn != nil && !s.conn.closed.Load() }
