package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// gated is a backend whose lists begin, and end one after the other when the test permits it.
type gated struct {
	fake

	mu     sync.Mutex
	begun  map[string]int // lists by subject
	end    chan struct{}
	served []string // subjects of lists that have ended
}

func (g *gated) Templates(ctx context.Context, _ tko.TemplateSelect, _ tko.ListOptions) iter.Seq2[tko.Template, error] {
	return func(yield func(tko.Template, error) bool) {
		i, _ := identity.From(ctx)
		g.mu.Lock()
		g.begun[i.Subject]++
		g.mu.Unlock()
		select {
		case <-g.end:
		case <-ctx.Done():
		}
		g.mu.Lock()
		g.served = append(g.served, i.Subject)
		g.mu.Unlock()
	}
}

func (g *gated) of(subject string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun[subject]
}

// 60 connections of one client neither keep another one's first list waiting, nor get more than
// their share while both have lists waiting.
func TestListsOfClientsTakeTurns(t *testing.T) {
	backend := &gated{begun: map[string]int{}, end: make(chan struct{})}
	dial := overTCP(t, backend, grpcapi.Options{Callers: named{}, Turns: turn.NewLimited(4 * turn.Heavy)})
	var lists sync.WaitGroup
	list := func(subject string) {
		data := tkopb.NewDataClient(dial())
		lists.Go(func() {
			s, err := data.ListTemplates(calling(t, subject), &tkopb.ListTemplates{})
			if err == nil {
				_, err = s.Recv()
			}
			if err != nil && err.Error() != "EOF" {
				t.Error(err)
			}
		})
	}
	for range 60 {
		list("token:greedy")
	}
	eventually.True(t, "four lists of the greedy client have begun", func() bool { return backend.of("token:greedy") == 4 })
	list("token:modest")
	eventually.True(t, "the list of the other client has begun", func() bool { return backend.of("token:modest") == 1 })
	if n := backend.of("token:greedy"); n != 4 {
		t.Errorf("%d lists of the greedy client have begun, want 4", n)
	}
	if _, err := tkopb.NewDataClient(dial()).BreakModification(calling(t, "token:greedy"), &tkopb.BreakModification{}); status.Code(err) == codes.ResourceExhausted {
		t.Errorf("a change waits for a turn: %v", err)
	}
	close(backend.end)
	lists.Wait()
	if backend.of("token:greedy") != 60 || backend.of("token:modest") != 1 {
		t.Errorf("served %v, want all", backend.begun)
	}
}

// A client has at most 1000 reads waiting: further ones get an error that says what to do, while
// other clients are served, and so is the client once some of its reads have ended.
func TestReadsBeyondTheBoundOfWaitingOnesAreRefused(t *testing.T) {
	backend := &gated{begun: map[string]int{}, end: make(chan struct{})}
	limits := grpcapi.Limits{Connection: 2 * turn.MaxWaiting, Client: 2 * turn.MaxWaiting}
	dial := overTCP(t, backend, grpcapi.Options{Callers: named{}, Turns: turn.NewLimited(turn.Heavy), Limits: limits})
	data := tkopb.NewDataClient(dial())
	list := func(subject string) error {
		s, err := data.ListTemplates(calling(t, subject), &tkopb.ListTemplates{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	var lists sync.WaitGroup
	var refused atomic.Int64
	const more = 20
	for range turn.MaxWaiting + 1 + more {
		lists.Go(func() {
			err := list("token:greedy")
			switch {
			case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "1000 reads waiting"):
				refused.Add(1)
			case !errors.Is(err, io.EOF):
				t.Error(err)
			}
		})
	}
	eventually.True(t, "the reads beyond the bound to be refused", func() bool { return refused.Load() == more })
	lists.Go(func() {
		if err := list("token:modest"); !errors.Is(err, io.EOF) {
			t.Errorf("the other client: %v", err)
		}
	})
	eventually.True(t, "the list of the other client has begun", func() bool { return backend.of("token:modest") == 1 })
	close(backend.end)
	lists.Wait()
	if got := backend.of("token:greedy"); got != turn.MaxWaiting+1 || refused.Load() != more {
		t.Errorf("%d reads were served, and %d refused, want %d and %d", got, refused.Load(), turn.MaxWaiting+1, more)
	}
	if err := list("token:greedy"); !errors.Is(err, io.EOF) {
		t.Errorf("a read after the others: %v", err)
	}
}
