package crowd

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// ready returns how many of the waiters are ready to run.
func ready(waiters []*Waiter) int {
	count := 0
	for _, w := range waiters {
		select {
		case <-w.Woken:
			count++
		default:
		}
	}
	return count
}

// The work that a signal causes before other goroutines run doesn't grow with the number of
// waiters.
func TestASignalMakesFewReady(t *testing.T) {
	t.Parallel()
	var c Crowd
	signal := make(chan struct{})
	waiters := make([]*Waiter, 5000)
	for i := range waiters {
		waiters[i] = c.Join(signal)
		if leads := waiters[i].Signal != nil; leads != (i == 0) {
			t.Fatalf("waiter %d waits for the signal itself: %t", i, leads)
		}
	}
	close(signal)
	waiters[0].Leave()
	rest := waiters[1:]
	for woken := atOnce; woken < len(rest); woken++ {
		if got := ready(rest[:min(len(rest), woken+2*atOnce)]); got != woken {
			t.Fatalf("%d are ready after %d have run, want %d", got, woken-atOnce, woken)
		}
		rest[woken-atOnce].Leave()
		rest[woken-atOnce].Leave() // has no effect
	}
	if got := ready(rest); got != len(rest) {
		t.Errorf("%d of %d were woken", got, len(rest))
	}
}

// Each waiter is woken at each signal, also if others leave at any time, the one that waits for
// the signal included.
func TestEachWaiterIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Crowd
		var mu sync.Mutex
		signal, round := make(chan struct{}), 0
		next := func() (<-chan struct{}, int) {
			mu.Lock()
			defer mu.Unlock()
			return signal, round
		}
		const rounds, waiters = 50, 100
		var reached atomic.Int64
		for i := range waiters {
			go func() {
				for {
					s, seen := next()
					if seen == rounds {
						reached.Add(1)
						return
					}
					if i%3 == 0 && seen == i/3 {
						c.Join(s).Leave() // leaves without waiting, and comes back
						s, seen = next()
					}
					if seen == rounds {
						continue
					}
					w := c.Join(s)
					select {
					case <-w.Signal:
					case <-w.Woken:
					}
					w.Leave()
				}
			}()
		}
		for range rounds {
			synctest.Wait()
			mu.Lock()
			close(signal)
			signal, round = make(chan struct{}), round+1
			mu.Unlock()
		}
		synctest.Wait()
		if reached.Load() != waiters {
			t.Errorf("%d of %d waiters saw the last round", reached.Load(), waiters)
		}
		if c.leader != nil || len(c.sleeping)+len(c.waking) != 0 {
			t.Errorf("%d sleeping and %d waking are left", len(c.sleeping), len(c.waking))
		}
	})
}

// Those who leave without a signal aren't remembered.
func TestThoseWhoLeftAreForgotten(t *testing.T) {
	t.Parallel()
	var c Crowd
	signal := make(chan struct{})
	first := c.Join(signal)
	for range 1000 {
		c.Join(signal).Leave()
	}
	if len(c.sleeping) > 4 {
		t.Errorf("%d are remembered, want the one that waits", len(c.sleeping))
	}
	first.Leave()
	if again := c.Join(signal); again.Signal == nil {
		t.Error("nothing waits for the signal after the one that did has left")
	}
}
