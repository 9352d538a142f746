package turn

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Weights of requests: how much of the server one uses while it is in progress.
const (
	Light = 1  // reads one entity
	Heavy = 16 // reads a list
)

// MaxWaiting is the number of requests of one client that may wait for their turns.
const MaxWaiting = 1000

// ErrFull is the error of a request of a client that has MaxWaiting requests waiting.
var ErrFull = errors.New("this client has 1000 reads waiting for its earlier ones, which is the limit: wait for their responses, and try again")

// slowReader is the time after which a request whose client doesn't read its response no longer
// keeps others waiting.
const slowReader = 10 * time.Millisecond

// firstCost is the assumed cost of the first request of a client, until it has ended.
const firstCost = time.Millisecond

// A Queue begins requests in turns. A client that has no request in progress is never kept
// waiting. Further concurrent requests begin while the ones in progress weigh less than the
// limit, those of the client first that has used the least. Use is the time in progress, times
// the weight. So the server is shared in equal parts among the clients that have requests
// waiting, and is not left idle for one. Queues may be used concurrently. A nil Queue begins
// each request at once.
type Queue struct {
	limit int // total weight of requests in progress

	mu       sync.Mutex
	running  int                // total weight of requests in progress
	used     time.Duration      // of the client whose request began last
	clients  map[string]*client // that have requests
	waiting  []*client          // that have requests waiting, the longest waiting client first
	turns    map[*Turn]struct{} // of requests in progress
	checking bool               // whether lend is scheduled
}

// client has the requests of a client.
type client struct {
	name    string
	running int           // number of requests in progress
	used    time.Duration // weighted time; comparable among clients
	cost    time.Duration // of the newest request that ended
	waiting []*Turn       // each begins when its channel is closed
}

// A Turn is a request that is in progress. A nil Turn has no effect.
type Turn struct {
	queue  *Queue
	name   string // of the client
	weight int

	begun   chan struct{} // closed when the request begins
	start   time.Time
	charged time.Duration
	client  *client // nil unless the request is in progress

	sending atomic.Int64 // when the current message was begun, in ns; 0: none; lent: others have the turn
}

// lent is the value of Turn.sending if others have the turn until the message is sent.
const lent = -1

// New returns a queue for as many concurrent requests as this machine can work on.
func New() *Queue { return NewLimited(max(4, 2*runtime.GOMAXPROCS(0)) * Heavy) }

// NewLimited returns a queue for concurrent requests of a total weight.
func NewLimited(weight int) *Queue {
	return &Queue{limit: weight, clients: map[string]*client{}, turns: map[*Turn]struct{}{}}
}

// Begin waits for the turn of a client's request, or for the end of its context, whose cause it
// returns then. The caller calls [Turn.Done] when the request has ended. If the client has
// MaxWaiting requests waiting, the error is ErrFull.
func (q *Queue) Begin(ctx context.Context, name string, weight int) (*Turn, error) {
	if q == nil {
		return nil, nil //nolint:nilnil // a nil Turn has no effect
	}
	t := &Turn{queue: q, name: name, weight: weight}
	return t, q.begin(ctx, t)
}

// arrive returns the client of a request that isn't in progress. The caller holds the lock.
func (q *Queue) arrive(t *Turn) *client {
	c := q.clients[t.name]
	if c == nil {
		c = &client{name: t.name, used: q.used, cost: firstCost * time.Duration(t.weight)}
		q.clients[t.name] = c
	}
	t.begun = make(chan struct{})
	return c
}

func (q *Queue) begin(ctx context.Context, t *Turn) error {
	q.mu.Lock()
	c := q.arrive(t)
	if c.running == 0 || q.running+t.weight <= q.limit && len(q.waiting) == 0 {
		q.start(c, t)
		q.mu.Unlock()
		return nil
	}
	if len(c.waiting) >= MaxWaiting {
		q.mu.Unlock()
		return ErrFull
	}
	c.waiting = append(c.waiting, t)
	if len(c.waiting) == 1 {
		q.waiting = append(q.waiting, c)
	}
	q.check()
	q.mu.Unlock()
	select {
	case <-t.begun:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	if t.client != nil { // its turn came at the same time
		q.end(t)
	} else if at := slices.Index(c.waiting, t); at >= 0 {
		c.waiting = slices.Delete(c.waiting, at, at+1)
		q.settle(c)
	}
	q.mu.Unlock()
	return context.Cause(ctx)
}

// start begins a request. The caller holds the lock.
func (q *Queue) start(c *client, t *Turn) {
	t.client, t.start, t.charged = c, time.Now(), c.cost
	c.used = max(c.used, q.used) // what a client didn't use while it had no requests waiting isn't saved
	q.used = c.used
	c.used += t.charged
	c.running++
	q.running += t.weight
	q.turns[t] = struct{}{}
	close(t.begun)
}

// Done ends a request. Further calls have no effect.
func (t *Turn) Done() {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if t.client != nil {
		t.queue.end(t)
	}
}

// end ends a request that is in progress, and begins those whose turn it is. The caller holds
// the lock.
func (q *Queue) end(t *Turn) {
	c := t.client
	t.client = nil
	c.cost = time.Since(t.start) * time.Duration(t.weight)
	c.used += c.cost - t.charged
	c.running--
	q.running -= t.weight
	delete(q.turns, t)
	if c.running == 0 && len(c.waiting) > 0 { // a client always has one
		q.next(c)
	}
	q.fill()
	q.settle(c)
}

// fill begins waiting requests while there is room. The caller holds the lock.
func (q *Queue) fill() {
	for len(q.waiting) > 0 {
		c := slices.MinFunc(q.waiting, func(a, b *client) int { return int(max(-1, min(1, a.used-b.used))) })
		if q.running+c.waiting[0].weight > q.limit {
			return
		}
		q.next(c)
	}
}

// next begins the first waiting request of a client. The caller holds the lock.
func (q *Queue) next(c *client) {
	t := c.waiting[0]
	c.waiting = c.waiting[1:]
	q.start(c, t)
	q.settle(c)
}

// settle forgets a client without waiting requests, or without any. The caller holds the lock.
func (q *Queue) settle(c *client) {
	if len(c.waiting) > 0 {
		return
	}
	if at := slices.Index(q.waiting, c); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	if c.running == 0 && q.clients[c.name] == c {
		delete(q.clients, c.name)
	}
}

// Send sends a part of the response by a function, which returns when the client, or a buffer,
// has it, and returns its error. While the client doesn't read, others have the turn. The request
// takes it back at once, also beyond the limit, and further ones wait longer for that: if it waited
// itself, it would seem that its client doesn't read, and the list would end.
func (t *Turn) Send(send func() error) error {
	if t == nil {
		return send()
	}
	t.sending.Store(time.Now().UnixNano())
	err := send()
	if t.sending.Swap(0) == lent && err == nil {
		t.queue.resume(t)
	}
	return err
}

// Write writes a part of the response of an HTTP request, as [Turn.Send] does.
func (t *Turn) Write(w http.ResponseWriter, data []byte) (n int, err error) {
	err = t.Send(func() error {
		n, err = w.Write(data)
		return err
	})
	return n, err
}

// Flush sends what was written of the response of an HTTP request, as [Turn.Send] does.
func (t *Turn) Flush(w http.ResponseWriter) {
	_ = t.Send(func() error { return http.NewResponseController(w).Flush() })
}

// resume begins a request again whose turn others had.
func (q *Queue) resume(t *Turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start(q.arrive(t), t)
}

type turnKey struct{}

// With returns the context of a request with its turn.
func With(ctx context.Context, t *Turn) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, turnKey{}, t)
}

// Send is [Turn.Send] for the turn of the request's context; without one it only sends.
func Send(ctx context.Context, send func() error) error {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t.Send(send)
}

// check schedules lend while requests wait. The caller holds the lock.
func (q *Queue) check() {
	if q.checking || len(q.waiting) == 0 {
		return
	}
	q.checking = true
	time.AfterFunc(slowReader, q.lend)
}

// lend ends the turns of requests whose clients don't read.
func (q *Queue) lend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.checking = false
	before := time.Now().Add(-slowReader).UnixNano()
	for t := range q.turns {
		if since := t.sending.Load(); since > 0 && since <= before && t.sending.CompareAndSwap(since, lent) {
			q.end(t)
		}
	}
	q.check()
}
