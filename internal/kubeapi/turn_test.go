package kubeapi_test

import (
	"context"
	"crypto/tls"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// gated is a catalog whose lists begin, and end when the test permits it.
type gated struct {
	kubeapi.Catalog

	end chan struct{}

	mu    sync.Mutex
	begun map[string]int // by address
}

func (g *gated) Records(ctx context.Context, q record.Query, at int64) iter.Seq2[record.Record, error] {
	i, _ := identity.From(ctx)
	host, _, _ := net.SplitHostPort(i.From)
	g.mu.Lock()
	g.begun[host]++
	g.mu.Unlock()
	select {
	case <-g.end:
	case <-ctx.Done():
	}
	return g.Catalog.Records(ctx, q, at)
}

func (g *gated) of(host string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun[host]
}

// 60 connections of one client don't keep another one's list waiting.
func TestListsOfKubernetesClientsTakeTurns(t *testing.T) {
	t.Parallel()
	const greedy, modest = "127.0.0.1", "127.0.0.2" // users of a server without credentials are addresses
	held := &gated{end: make(chan struct{}), begun: map[string]int{}}
	w := newWorldOf(t, func(c kubeapi.Catalog) kubeapi.Catalog { held.Catalog = c; return held },
		func(o *kubeapi.Options) { o.Turns = turn.NewLimited(4 * turn.Heavy) })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(w.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(t.Context(), tko.Site{ID: "s"}); err != nil { // a list of nothing reads nothing
		t.Fatal(err)
	}
	var lists sync.WaitGroup
	list := func(from string) {
		lists.Go(func() {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+group+"sites", nil)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = response.Body.Close() }()
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%s: %v: %s", response.Status, err, body)
			}
		})
	}
	for range 60 {
		list(greedy)
	}
	eventually.True(t, "four lists of the greedy client have begun", func() bool { return held.of(greedy) == 4 })
	list(modest)
	eventually.True(t, "the list of the other client has begun", func() bool { return held.of(modest) == 1 })
	if n := held.of(greedy); n != 4 {
		t.Errorf("%d lists of the greedy client have begun, want 4", n)
	}
	close(held.end)
	lists.Wait()
	if n := held.of(greedy); n != 60 {
		t.Errorf("%d lists of the greedy client were served, want 60", n)
	}
}
