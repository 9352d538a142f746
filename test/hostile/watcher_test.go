package hostile

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/test/process"
)

// Watchers that never read are limited in number, need little memory, and don't delay
// writes.
func TestWatchersThatNeverReadDoNotDelayWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--roles=data", "--store=sqlite::memory:")
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	const connections, each = 8, 125
	before := memory(t, w.server.PID)
	var conn *grpc.ClientConn
	for range connections {
		conn = connect(t, w.server.GRPC, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
		for range each {
			if _, err := tkopb.NewDataClient(conn).WatchChanges(ctx, &tkopb.WatchChanges{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := make(chan error, 1)
	for range each { // at the latest, at the limit of a connection
		watch, err := tkopb.NewDataClient(conn).WatchChanges(ctx, &tkopb.WatchChanges{After: -1})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if _, err := watch.Recv(); status.Code(err) == codes.ResourceExhausted {
				select {
				case refused <- err:
				default:
				}
			}
		}()
	}
	select {
	case err := <-refused:
		t.Log(err)
	case <-time.After(timeLimit):
		t.Fatal("no watch is refused")
	}
	slowest := time.Duration(0)
	for i := range 1500 {
		began := time.Now()
		if _, err := w.RegisterSite(ctx, tko.Site{ID: "s", Metadata: map[string]string{"n": strconv.Itoa(i), "text": strings.Repeat("x", 100)}}); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	grown := memory(t, w.server.PID) - before
	t.Logf("%d watchers: %d MiB, the slowest write took %s", connections*each, grown>>20, slowest)
	if slowest > quickly {
		t.Errorf("a write took %s", slowest)
	}
	limit := int64(300 << 20)
	if process.Race() {
		limit *= 8 // the race detector's shadow memory
	}
	if grown > limit {
		t.Errorf("the server grew by %d MiB, want at most %d", grown>>20, limit>>20)
	}
	w.goesOn(t)
}

// A large message does not delay the stop of a server.
func TestLargeMessageDoesNotDelayStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--roles=data", "--store=sqlite::memory:")
	conditions := make([]*tkopb.Condition, 40_000)
	for i := range conditions {
		conditions[i] = &tkopb.Condition{Type: fmt.Sprintf("type-%06d-%s", i, strings.Repeat("x", 100)), Status: "True"}
	}
	_, err := w.data.SetConditions(patient(t), &tkopb.SetConditions{Kind: "site", Id: "kept", Conditions: conditions})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%.200v, want InvalidArgument", err)
	}
	began := time.Now()
	w.server.Stop()
	if took := time.Since(began); took > 45*time.Second {
		t.Errorf("it took %s to stop", took)
	}
}
