// Package crowd wakes the many goroutines that wait for one signal a few at a time, so that
// other work of the process isn't delayed until all of them have run.
package crowd

import (
	"runtime"
	"slices"
	"sync"
)

// atOnce is the number of goroutines that a signal makes ready to run. Each of them makes the
// next one ready when it runs.
var atOnce = runtime.GOMAXPROCS(0)

// A Crowd is a set of goroutines that wait for the same signal, which is a channel that is closed
// and replaced at each event. If each of thousands of watchers waited for the channel itself, all
// would become ready to run when it is closed, and a request would wait for all of them at each
// step. The zero value is an empty crowd.
type Crowd struct {
	mu       sync.Mutex
	leader   *Waiter   // waits for the signal, and then wakes the others; nil if there are none
	sleeping []*Waiter // wait for the leader, which is one of them
	waking   []*Waiter // the signal has come; each is woken by one before it
	left     int       // number of those in sleeping that have left
}

// A Waiter is a goroutine in a crowd. It receives from Signal and Woken, whichever is first, and
// calls [Waiter.Leave] then, or if it ends for another reason.
type Waiter struct {
	// Signal is the signal if this waiter waits for it in the place of all; else nil.
	Signal <-chan struct{}
	// Woken is closed when it is the waiter's turn.
	Woken <-chan struct{}

	crowd *Crowd
	woken chan struct{}
	gone  bool
	awake bool
}

// Join adds the calling goroutine to those that wait for a signal. Signals that are older than
// those of others in the crowd must have been closed.
func (c *Crowd) Join(signal <-chan struct{}) *Waiter {
	w := &Waiter{crowd: c, woken: make(chan struct{})}
	w.Woken = w.woken
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-signal:
		w.awake = true
		close(w.woken)
		return w
	default:
	}
	c.sleeping = append(c.sleeping, w)
	if c.leader == nil {
		c.leader, w.Signal = w, signal
	}
	return w
}

// Leave ends waiting. If the waiter was woken, it wakes the next one; if it waited in the place of
// all, it wakes the first ones. Further calls have no effect.
func (w *Waiter) Leave() {
	c := w.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.gone {
		return
	}
	w.gone = true
	switch {
	case c.leader == w:
		c.leader = nil
		c.waking = append(c.waking, c.sleeping...)
		c.sleeping, c.left = nil, 0
		c.wake(atOnce)
	case w.awake:
		c.wake(1)
	default:
		c.forget()
	}
}

// forget removes those who have left from the sleeping ones, once they are the most. The caller
// holds the lock.
func (c *Crowd) forget() {
	c.left++
	if c.left <= len(c.sleeping)/2 {
		return
	}
	c.sleeping = slices.DeleteFunc(c.sleeping, func(w *Waiter) bool { return w.gone })
	c.left = 0
}

// wake wakes some of those whose signal has come. The caller holds the lock.
func (c *Crowd) wake(count int) {
	for count > 0 && len(c.waking) > 0 {
		w := c.waking[0]
		c.waking[0] = nil
		c.waking = c.waking[1:]
		if !w.gone {
			w.awake = true
			close(w.woken)
			count--
		}
	}
}
