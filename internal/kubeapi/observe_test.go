package kubeapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A counter is an observer that counts calls of itself.
type counter struct {
	mu     sync.Mutex
	counts map[string]int
}

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

func (c *counter) Requested(method string, status int, _ time.Duration) {
	c.add(fmt.Sprint(method, " ", status), 1)
}
func (c *counter) Refused(limit string) { c.add("refused "+limit, 1) }
func (c *counter) Watching(change int)  { c.add("watching", change) }
func (c *counter) Dropped()             { c.add("dropped", 1) }

// Requests are counted by verb and resource, and unknown ones together, so that
// clients can't make series.
func TestRequestsAreCountedByVerbAndResource(t *testing.T) {
	t.Parallel()
	c := &counter{counts: map[string]int{}}
	w := newWorld(t, func(o *kubeapi.Options) {
		o.Observer = c
		o.Watches = kubeapi.WatchLimits{User: 1, Total: 10}
	})
	for _, path := range []string{"sites", "sites/absent", "nothing", "sites/absent/nothing"} {
		w.do(http.MethodGet, path, nil)
	}
	_, end := w.open(w.client, "sites?watch=1")
	eventually.True(t, "the watch is counted", func() bool { return c.of("watching") == 1 })
	w.do(http.MethodGet, "templates?watch=1", nil)
	end()
	for name, want := range map[string]int{"list sites 200": 1, "get sites 404": 1, "other 404": 2, "watch templates 429": 1, "refused client": 1, "watching": 0, "watch sites 200": 1} {
		eventually.True(t, name, func() bool { return c.of(name) == want })
	}
}
