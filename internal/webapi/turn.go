package webapi

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// A turns gives the requests of clients their turns. A client that has no request in progress
// is never kept waiting. Further concurrent requests begin while fewer than limit are in
// progress, and take turns among the clients that have some waiting, in the order in which
// the clients were served last. So the many connections of one client don't slow down
// others, and are not slowed down while the server has nothing else to do.
type turns struct {
	limit int

	mu      sync.Mutex
	running int
	clients map[string]*turnsOf // that have requests
	round   []*turnsOf          // clients with waiting requests; the first one is next
}

// turnsOf has the requests of a client.
type turnsOf struct {
	running int
	waiting []chan struct{} // each is closed when its request begins
}

// newTurns returns turns for as many concurrent requests as this machine can work on.
func newTurns() *turns {
	return &turns{limit: max(4, 2*runtime.GOMAXPROCS(0)), clients: map[string]*turnsOf{}}
}

// begin waits for the turn of a request, or for the end of its context. The caller calls
// done when a request that began has ended.
func (t *turns) begin(ctx context.Context, client string) (done func(), err error) {
	t.mu.Lock()
	c := t.clients[client]
	if c == nil {
		c = &turnsOf{}
		t.clients[client] = c
	}
	done = sync.OnceFunc(func() { t.end(client, c) })
	if c.running == 0 || t.running < t.limit && len(c.waiting) == 0 {
		c.running++
		t.running++
		t.mu.Unlock()
		return done, nil
	}
	turn := make(chan struct{})
	if c.waiting = append(c.waiting, turn); len(c.waiting) == 1 {
		t.round = append(t.round, c)
	}
	t.mu.Unlock()
	select {
	case <-turn:
		return done, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	for i, other := range c.waiting {
		if other == turn {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			if len(c.waiting) == 0 {
				t.leaveRound(c)
			}
			t.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
	t.mu.Unlock()
	done() // its turn came at the same time
	return nil, context.Cause(ctx)
}

// leaveRound removes a client that has no waiting requests. The caller holds the lock.
func (t *turns) leaveRound(c *turnsOf) {
	for i, other := range t.round {
		if other == c {
			t.round = append(t.round[:i:i], t.round[i+1:]...)
			return
		}
	}
}

func (t *turns) end(client string, c *turnsOf) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.running--
	t.running--
	if c.running == 0 && len(c.waiting) > 0 { // a client always has one
		t.start(c)
	}
	for t.running < t.limit && len(t.round) > 0 {
		t.start(t.round[0])
	}
	if c.running == 0 && len(c.waiting) == 0 {
		delete(t.clients, client)
	}
}

// start begins the first waiting request of a client, which then is the last one in the
// round. The caller holds the lock.
func (t *turns) start(c *turnsOf) {
	turn := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.running++
	t.running++
	t.leaveRound(c)
	if len(c.waiting) > 0 {
		t.round = append(t.round, c)
	}
	close(turn)
}

// fair gives the requests of clients that read lists and entities their turns. Requests that
// wait for changes, and those that change something, don't take turns: they would hold one
// without working.
func fair(t *turns, client string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !takesTurns(r.URL.Path) {
		next.ServeHTTP(w, r)
		return
	}
	done, err := t.begin(r.Context(), client)
	if err != nil {
		return // the client has gone
	}
	defer done()
	next.ServeHTTP(w, r)
}

// waits are the reads that wait: for changes, or for a meta-scheduler.
var waits = []string{"/api/v1/stream", "/api/site/diff"}

// takesTurns reports whether requests of a path take turns.
func takesTurns(path string) bool {
	return strings.HasPrefix(path, "/api/") && !slices.Contains(waits, path)
}
