package tkoserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
)

// A process without its data controller is alive, but not ready.
func TestHealthReportsDataController(t *testing.T) {
	data, stopData := start(t, "--roles=data", "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=", "--listen-health=localhost:0")
	preparer, _ := start(t, "--roles=preparer", "--data="+data.GRPC[0], "--listen-health=localhost:0")
	for _, address := range []string{data.Health[0], preparer.Health[0]} {
		awaitStatus(t, address, "/healthz", http.StatusOK)
		awaitStatus(t, address, "/readyz", http.StatusOK)
	}
	stopData()
	awaitStatus(t, preparer.Health[0], "/readyz", http.StatusServiceUnavailable)
	awaitStatus(t, preparer.Health[0], "/healthz", http.StatusOK)
}

type serving struct {
	GRPC, Web, Health, Metrics []string

	log *eventually.Buffer
}

// start runs a server until stop is called or the test ends.
func start(t *testing.T, args ...string) (s serving, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out eventually.Buffer
	ready := filepath.Join(t.TempDir(), "ready.json")
	code, done := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(done)
		code <- run(ctx, append(args, "--ready-file="+ready), &out, &out)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	s.log = &out
	eventually.True(t, "the server", func() bool {
		if len(code) > 0 {
			t.Fatalf("the server ended\n%s", &out)
		}
		text, err := os.ReadFile(ready)
		return err == nil && json.Unmarshal(text, &s) == nil
	})
	return s, stop
}

func awaitStatus(t *testing.T, address, path string, want int) {
	t.Helper()
	eventually.NoError(t, fmt.Sprintf("status %d of %s%s", want, address, path), func() error {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			return fmt.Errorf("the status is %s", response.Status)
		}
		return nil
	})
}
