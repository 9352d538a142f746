package kubeapi_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// open starts a watch, and returns its status. It does not read the body of the
// response, which stays open until the test ends.
func (w *world) open(client *http.Client, path string) (status int, end context.CancelFunc) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+group+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = response.Body.Close() })
	return response.StatusCode, cancel
}

func TestWatchesOfAUserAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *kubeapi.Options) {
		o.Watches = kubeapi.WatchLimits{User: 2, Total: 10, Slow: 100 * time.Millisecond}
	})
	head, err := w.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := w.watch(fmt.Sprintf("templates?watch=1&resourceVersion=%d", head+0))
	_, end := w.open(w.client, "sites?watch=1")
	w.fails(http.StatusTooManyRequests, "--streams-per-client", http.MethodGet, "sites?watch=1", nil)
	if code, _ := w.do(http.MethodGet, "sites", nil); code != http.StatusOK {
		t.Errorf("a list: %d: lists are not watches", code)
	}
	end()
	eventually.True(t, "another watch is let in once one has ended", func() bool {
		status, end := w.open(w.client, "sites?watch=1")
		defer end()
		return status == http.StatusOK
	})
	time.Sleep(time.Second) // far longer than a write may take
	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "t"}); err != nil {
		t.Fatal(err)
	}
	if e := next(); e.Type != "ADDED" || e.Object.text("spec.templateId") != "t" {
		t.Errorf("%v: want the template, though nothing had happened for longer than --slow-watch", e)
	}
}

func TestWatcherThatNeverReadsIsEnded(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]*http.Transport{
		"HTTP/1.1": {TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		"HTTP/2":   {TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &counter{counts: map[string]int{}}
			w := newWorld(t, func(o *kubeapi.Options) {
				o.Watches = kubeapi.WatchLimits{User: 1, Total: 10, Slow: 300 * time.Millisecond}
				o.Observer = counted
			})
			t.Cleanup(transport.CloseIdleConnections)
			status, _ := w.open(&http.Client{Transport: transport}, "templates?watch=1")
			if status != http.StatusOK {
				t.Fatal(status)
			}
			large := strings.Repeat("x", 1<<20)
			for n := range 30 { // more than all buffers hold
				pkg := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"text": fmt.Sprint(n, large)}}}
				if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "t", Package: pkg}); err != nil {
					t.Fatal(err)
				}
			}
			eventually.True(t, "the watch is ended, and another let in", func() bool {
				status, end := w.open(w.client, "sites?watch=1")
				defer end()
				return status == http.StatusOK
			})
			eventually.True(t, "the watch is counted as dropped", func() bool { return counted.of("dropped") >= 1 }) // another watch may be as slow on a busy machine
		})
	}
}

func TestRequestsOfAUserAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *kubeapi.Options) { o.Watches = kubeapi.WatchLimits{Rate: 0.001} })
	w.must("GET", "sites", nil)
	w.fails(http.StatusTooManyRequests, "--requests-per-client", "GET", "sites", nil)
	w.fails(http.StatusTooManyRequests, "--requests-per-client", "DELETE", "sites/none", nil)
}
