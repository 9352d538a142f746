package grpcapi_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A counter is an observer that counts calls of itself.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

func newCounter() *counter { return &counter{counts: map[string]int{}} }

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[name] += n
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[name]
}

func (c *counter) Called(method string, code codes.Code, _ time.Duration) {
	c.add(method+" "+code.String(), 1)
}
func (c *counter) Streaming(method string, change int) { c.add("streams "+method, change) }
func (c *counter) Refused(limit string)                { c.add("refused "+limit, 1) }
func (c *counter) Watching(change int)                 { c.add("watching", change) }
func (c *counter) Slow(change int)                     { c.add("slow", change) }
func (c *counter) Dropped()                            { c.add("dropped", 1) }

// Calls are counted with the codes that clients get: of the backend's errors and
// panics, and of refusals before the backend.
func TestCallsAreCountedWithTheirCodes(t *testing.T) {
	var next func() error
	backend := &fake{about: func(context.Context) (tko.About, error) { return tko.About{}, next() }}
	c := newCounter()
	data := tkopb.NewDataClient(overTCP(t, backend, grpcapi.Options{Observer: c, Limits: grpcapi.Limits{Rate: 1.0 / 3600, Burst: 4}})())
	for _, result := range []func() error{
		func() error { return nil },
		func() error { return tko.Errorf(tko.ErrBusy, "busy") },
		func() error { return errors.New("a fault") },
		func() error { panic("a fault") },
		func() error { return nil },
	} {
		next = result
		_, _ = data.About(t.Context(), &emptypb.Empty{})
	}
	about := tkopb.Data_About_FullMethodName
	for name, want := range map[string]int{about + " OK": 1, about + " Internal": 2, about + " ResourceExhausted": 1, "refused rate": 1} {
		if got := c.of(name); got != want {
			t.Errorf("%s: %d, want %d of %v", name, got, want, c.counts)
		}
	}
}

// Every limit has the name under which its refusals are counted.
func TestRefusalsOfEachLimitAreCounted(t *testing.T) {
	var told, ended atomic.Int64
	refused := map[string]grpcapi.Limits{
		"connection": {Connection: 1, Client: 10, Total: 10}, "client": {Connection: 10, Client: 1, Total: 10}, "total": {Connection: 10, Client: 10, Total: 1},
	}
	for limit, limits := range refused {
		c := newCounter()
		data := tkopb.NewDataClient(overTCP(t, endless(&told, &ended), grpcapi.Options{Observer: c, Limits: limits})())
		for range 2 {
			watch, err := data.WatchChanges(t.Context(), &tkopb.WatchChanges{})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = watch.Recv()
		}
		if got := c.of("refused " + limit); got != 1 || !slices.Contains(grpcapi.LimitNames(), limit) {
			t.Errorf("%s: %v", limit, c.counts)
		}
	}
	c := newCounter()
	data := tkopb.NewDataClient(overTCP(t, &fake{}, grpcapi.Options{Observer: c, Callers: &rejecting{}, Limits: grpcapi.Limits{Rate: 1.0 / 3600, Burst: 1}})())
	for range 3 {
		_, _ = data.About(t.Context(), &emptypb.Empty{})
	}
	if c.of("refused failures") != 2 || c.of(tkopb.Data_About_FullMethodName+" Unauthenticated") != 1 {
		t.Errorf("calls with a wrong token: %v", c.counts)
	}
}

// A watch whose client doesn't read is slow, then dropped, and then not counted any
// more.
func TestWatchersAreCountedWhileSlowAndWhenDropped(t *testing.T) {
	t.Parallel()
	var told, ended atomic.Int64
	c := newCounter()
	data := tkopb.NewDataClient(overTCP(t, endless(&told, &ended), grpcapi.Options{Observer: c, SlowWatch: time.Second})())
	if _, err := data.WatchChanges(t.Context(), &tkopb.WatchChanges{After: 5}); err != nil {
		t.Fatal(err)
	}
	watch := tkopb.Data_WatchChanges_FullMethodName
	eventually.True(t, "the watch is slow", func() bool {
		return c.of("slow") == 1 && c.of("watching") == 1 && c.of("streams "+watch) == 1 || c.of("dropped") == 1
	})
	eventually.True(t, "the watch was dropped", func() bool {
		return c.of("dropped") == 1 && c.of("slow") == 0 && c.of("watching") == 0 && c.of("streams "+watch) == 0 && c.of(watch+" Unavailable") == 1
	})
}
