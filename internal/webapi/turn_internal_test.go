package webapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// The many requests of one client don't delay those of others: the order in which they are
// served is counted, not timed.
func TestClientsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns()
		q.limit = 4
		var order []string
		release := map[string]chan struct{}{}
		request := func(client string, n int) {
			name := fmt.Sprint(client, n)
			release[name] = make(chan struct{})
			go func() {
				done, err := q.begin(t.Context(), client)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				<-release[name]
				done()
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
		if q.running != 0 || len(q.clients)+len(q.round) != 0 {
			t.Errorf("%d running, %d clients and %d in the round are left", q.running, len(q.clients), len(q.round))
		}
	})
}

func TestCancelledRequestsLeaveTheirTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newTurns()
		q.limit = 1
		done, err := q.begin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := q.begin(ctx, "a")
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		done()
		done() // has no effect
		if q.running != 0 || len(q.clients)+len(q.round) != 0 {
			t.Errorf("%d running, %d clients and %d in the round are left", q.running, len(q.clients), len(q.round))
		}
	})
}

// Streams of changes would hold a turn for ever.
func TestReadsThatWaitTakeNoTurns(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{"/api/v1/stream": false, "/api/site/diff": false, "/api/v1/site/list": true, "/api/deployment/list": true, "/": false, "/auth/login": false} {
		if got := takesTurns(path); got != want {
			t.Errorf("%s takes turns: %t, want %t", path, got, want)
		}
	}
}
