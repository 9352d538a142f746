package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// number returns the value of an environment variable, or otherwise.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Lists in chunks need constant memory of the server, and many watchers get changes
// soon. docs/performance.md has results; environment variables make the test larger.
func TestLargeListsAndManyWatchersAreServed(t *testing.T) {
	w := newWorld(t, "data")
	n := number(t, "TKO_KUBERNETES_OBJECTS", 1000)
	w.writeAll(0, n, "0")
	w.with("", "get", "tkot", id(0)) // to initialize caches

	before, start := w.memory(), time.Now()
	lines := strings.Split(w.with("", "get", "tkot", "--chunk-size=500", "--no-headers"), "\n")
	took, grown := time.Since(start), w.memory()-before
	if len(lines) != n || !strings.HasPrefix(lines[n-1], id(n-1)) {
		t.Errorf("%d lines of %d, the last is %s", len(lines), n, lines[len(lines)-1])
	}
	t.Logf("kubectl get of %d objects in chunks of 500: %s, the server's memory grew from %d to at most %d MiB", n, took.Round(time.Millisecond), before, before+grown)
	if grown > 100 { // bounded caches of connections
		t.Errorf("the server's memory grew by %d MiB: a list must not be held in memory", grown)
	}
	w.watchers(number(t, "TKO_KUBERNETES_WATCHERS", 5), number(t, "TKO_KUBERNETES_WRITES", 50))
}

// watchers measures the latency of many watches at 100 changes per second.
func (w *world) watchers(watchers, writes int) {
	w.t.Helper()
	config := kubetest.Config(w.Cluster)
	api, err := dynamic.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), timeLimit)
	defer cancel()
	from := strconv.FormatInt(w.position(), 10)
	written := make([]time.Time, writes)
	var lock sync.Mutex
	var latencies []time.Duration
	var running sync.WaitGroup
	for range watchers {
		watch, err := api.Resource(templates).Watch(ctx, metav1.ListOptions{ResourceVersion: from, LabelSelector: "load"})
		if err != nil {
			w.t.Fatal(err)
		}
		running.Go(func() {
			defer watch.Stop()
			for next := range writes {
				e, ok := <-watch.ResultChan()
				o, is := e.Object.(metav1.Object)
				if !ok || !is || o.GetLabels()["value"] != strconv.Itoa(next) {
					w.t.Errorf("a watcher got %v in place of change %d", e, next)
					return
				}
				lock.Lock()
				latencies = append(latencies, time.Since(written[next]))
				lock.Unlock()
			}
		})
	}
	c := w.dial()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := range writes {
		<-ticker.C
		lock.Lock()
		written[i] = time.Now()
		lock.Unlock()
		if err := writeLoad(ctx, c, i); err != nil {
			w.t.Fatal(err)
		}
	}
	running.Wait()
	if len(latencies) == 0 {
		return
	}
	slices.Sort(latencies)
	at := func(part float64) time.Duration {
		return latencies[int(part*float64(len(latencies)-1))].Round(100 * time.Microsecond)
	}
	w.t.Logf("%d watchers, %d changes at up to 100 per second: from the beginning of a write to its event %s (median), %s (99 %%), %s (at most)",
		watchers, writes, at(0.5), at(0.99), at(1))
}

// memory returns the server's own memory, in MiB.
func (w *world) memory() int {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); fields[0] == "VmHWM:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				w.t.Fatal(err)
			}
			return n >> 10
		}
	}
	w.t.Fatal("the memory of the server is unknown")
	return 0
}
