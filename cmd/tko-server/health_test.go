package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
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

type serving struct{ GRPC, Health []string }

// start runs a server until stop is called or the test ends.
func start(t *testing.T, args ...string) (s serving, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out lines
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
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(ready); err == nil && json.Unmarshal(text, &s) == nil {
			return s, stop
		}
		if len(code) > 0 || time.Now().After(deadline) {
			t.Fatalf("not ready\n%s", &out)
		}
	}
}

func awaitStatus(t *testing.T, address, path string, want int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + address + path)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == want {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s of %s: want status %d, got %+v, %v", path, address, want, response, err)
		}
	}
}
