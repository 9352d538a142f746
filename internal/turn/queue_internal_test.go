package turn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// empty fails the test if a queue whose requests have all ended has something left.
func (q *Queue) empty(t *testing.T) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != 0 || len(q.clients)+len(q.waiting)+len(q.turns) != 0 {
		t.Errorf("%d running, %d clients, %d of them waiting and %d turns are left", q.running, len(q.clients), len(q.waiting), len(q.turns))
	}
}

// The many requests of one client don't delay those of others: the order in which they are
// served is counted, not timed.
func TestClientsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewLimited(4 * Heavy)
		var order []string
		release := map[string]chan struct{}{}
		request := func(client string, n int) {
			name := fmt.Sprint(client, n)
			release[name] = make(chan struct{})
			go func() {
				turn, err := q.Begin(t.Context(), client, Heavy)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				<-release[name]
				turn.Done()
			}()
			synctest.Wait()
		}
		for n := range 60 {
			request("greedy", n)
		}
		if len(order) != 4 {
			t.Fatalf("%d requests of one client began, want 4: %v", len(order), order)
		}
		request("modest", 0)
		if len(order) != 5 || order[4] != "modest0" {
			t.Fatalf("the order is %v, want that the first request of a client begins at once", order)
		}
		for n := 1; n < 4; n++ {
			request("modest", n)
			request("third", n)
		}
		for i := 0; i < len(order); i++ { //nolint:intrange // each that began ends, and others begin then
			time.Sleep(time.Millisecond)
			close(release[order[i]])
			synctest.Wait()
		}
		if len(order) != 67 {
			t.Fatalf("%d requests began, want all 67", len(order))
		}
		for _, name := range []string{"modest3", "third3"} {
			if at := slices.Index(order, name); at > 20 {
				t.Errorf("%s began after %d others, of which 60 are of one client: want fewer than 20", name, at)
			}
		}
		q.empty(t)
	})
}

// serve has clients repeat requests of a weight and a duration, each over a number of
// connections, for ten seconds, and returns how many were served.
func serve(t *testing.T, q *Queue, clients map[string]struct {
	connections, weight int
	each                time.Duration
},
) map[string]int {
	t.Helper()
	served := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, c := range clients {
		for range c.connections {
			go func() {
				for ctx.Err() == nil {
					turn, err := q.Begin(ctx, name, c.weight)
					if err != nil {
						return
					}
					time.Sleep(c.each)
					turn.Done()
					q.mu.Lock()
					served[name]++
					q.mu.Unlock()
				}
			}()
		}
	}
	<-ctx.Done()
	synctest.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
	return served
}

// Shares are equal by use, not by the number of connections or of requests.
func TestSharesDependOnUse(t *testing.T) {
	t.Parallel()
	type load = struct {
		connections, weight int
		each                time.Duration
	}
	for name, test := range map[string]struct {
		why            string
		greedy, modest load
		least, most    float64 // of the modest client's requests for one of the greedy client
	}{
		"more connections":  {"60 connections are served as often as 8", load{60, Heavy, 10 * time.Millisecond}, load{8, Heavy, 10 * time.Millisecond}, 0.8, 1.3},
		"longer requests":   {"requests that take ten times as long are served a tenth as often", load{60, Heavy, 100 * time.Millisecond}, load{20, Heavy, 10 * time.Millisecond}, 8, 13},
		"heavier requests":  {"lists cost as much as 16 reads of one entity", load{60, Heavy, 10 * time.Millisecond}, load{100, Light, 10 * time.Millisecond}, 12, 20},
		"one at a time":     {"the only request of a client begins at once: a tenth of 4 at once is 1 each 10 ms", load{60, Heavy, 10 * time.Millisecond}, load{1, Heavy, 10 * time.Millisecond}, 0.2, 0.4},
		"none of the other": {"a client alone has the whole server", load{60, Heavy, 10 * time.Millisecond}, load{0, Heavy, 10 * time.Millisecond}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := NewLimited(4 * Heavy)
				served := serve(t, q, map[string]load{"greedy": test.greedy, "modest": test.modest})
				if ratio := float64(served["modest"]) / float64(served["greedy"]); ratio < test.least || ratio > test.most {
					t.Errorf("served %v, a ratio of %.2f, want %g to %g: %s", served, ratio, test.least, test.most, test.why)
				}
				if test.modest.connections == 0 && served["greedy"] < 3990 {
					t.Errorf("%d of the only client were served, want 4 in each 10 ms: 4000", served["greedy"])
				}
				q.empty(t)
			})
		})
	}
}

func TestCancelledRequestsLeaveTheirTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewLimited(Heavy)
		turn, err := q.Begin(t.Context(), "a", Heavy)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := q.Begin(ctx, "a", Heavy)
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		turn.Done()
		turn.Done() // has no effect
		q.empty(t)
	})
}

// Requests whose clients don't read their responses don't keep others waiting.
func TestSlowReadersLendTheirTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewLimited(2 * Heavy)
		read := make(chan struct{})
		sent := make(chan error, 2)
		for range 2 { // all turns
			turn, err := q.Begin(t.Context(), "slow", Heavy)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				sent <- turn.Send(func() error { <-read; return nil })
				turn.Done()
			}()
		}
		first, err := q.Begin(t.Context(), "other", Heavy)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		second, err := q.Begin(ctx, "other", Heavy)
		if err != nil {
			t.Fatalf("a second request next to slow readers: %v, want that it begins", err)
		}
		close(read)
		for range 2 { // a list that waited for a turn would look like one whose client doesn't read
			if err := <-sent; err != nil {
				t.Errorf("sending returned %v", err)
			}
		}
		first.Done()
		second.Done()
		synctest.Wait()
		q.empty(t)
	})
}

func TestWaitingRequestsOfAClientAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewLimited(Heavy)
		ctx, cancel := context.WithCancel(t.Context())
		turn, err := q.Begin(ctx, "a", Heavy)
		if err != nil {
			t.Fatal(err)
		}
		for range MaxWaiting {
			go func() { _, _ = q.Begin(ctx, "a", Light) }()
		}
		synctest.Wait()
		if _, err := q.Begin(ctx, "a", Light); !errors.Is(err, ErrFull) {
			t.Errorf("one more waiting request: %v, want %v", err, ErrFull)
		}
		other, err := q.Begin(ctx, "b", Light)
		if err != nil {
			t.Errorf("a request of another client: %v", err)
		}
		other.Done()
		cancel()
		synctest.Wait()
		turn.Done()
		q.empty(t)
	})
}

func TestWithoutAQueueAllRequestsBegin(t *testing.T) {
	t.Parallel()
	var q *Queue
	turn, err := q.Begin(t.Context(), "a", Heavy)
	if err != nil {
		t.Fatal(err)
	}
	sent := false
	if err := turn.Send(func() error { sent = true; return nil }); err != nil || !sent {
		t.Errorf("sent: %t, %v", sent, err)
	}
	turn.Done()
}
