package tkoserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2"

	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestStoppingDoesNotWaitForWhatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out eventually.Buffer
		never := make(chan struct{})
		time.AfterFunc(time.Hour, cancel)
		began := time.Now()
		err := endWithin(ctx, 25*time.Second, slog.New(slog.NewTextHandler(&out, nil)), func() error { <-never; return nil })
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "--stop-timeout") || took != time.Hour+25*time.Second {
			t.Errorf("%v after %s, want an error 25 s after it was asked to stop", err, took)
		}
		if !strings.Contains(out.String(), "level=ERROR") || !strings.Contains(out.String(), "goroutine") {
			t.Errorf("the log has no stack of the call that hangs:\n%s", &out)
		}
		close(never)

		failed := errors.New("failed")
		if err := endWithin(t.Context(), time.Second, slog.New(slog.DiscardHandler), func() error { time.Sleep(time.Minute); return failed }); !errors.Is(err, failed) {
			t.Errorf("%v, want the error of the call, which ended before it was asked to stop", err)
		}
	})
}

// deaf is a service whose calls ignore the end of their context.
type deaf struct {
	healthpb.UnimplementedHealthServer

	called, never chan struct{}
}

func (d *deaf) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	close(d.called)
	<-d.never
	return &healthpb.HealthCheckResponse{}, nil
}

func TestStoppingDoesNotWaitForCallsThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{called: make(chan struct{}), never: make(chan struct{})}
		api := grpc.NewServer()
		healthpb.RegisterHealthServer(api, d)
		l := bufconn.Listen(1 << 16)
		go func() { _ = api.Serve(l) }()
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		}()
		<-d.called
		var out eventually.Buffer
		began := time.Now()
		stopGRPC(t.Context(), api, slog.New(slog.NewTextHandler(&out, nil)))
		if took := time.Since(began); took > goodbye+2*lastCalls {
			t.Errorf("it took %s", took)
		}
		if !strings.Contains(out.String(), "calls still run") || !strings.Contains(out.String(), "deaf") {
			t.Errorf("the log has no stack of the call:\n%s", &out)
		}
		close(d.never)
		_ = conn.Close()
		<-ended
		synctest.Wait()
	})
}

func TestLibrariesDontBreakTheJSONLog(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out eventually.Buffer
	ready := filepath.Join(t.TempDir(), "ready.json")
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"--roles=data", "--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--listen-log=",
			"--ready-file=" + ready, "--log-format=json", "--log-level=debug",
		}, &out, &out)
	}()
	waitReady(t, ready, code, &out)
	grpclog.Errorf("grpc says %d", 1)
	grpclog.Infoln("grpc whispers")
	klog.Errorf("klog says %d", 2)
	klog.ErrorS(errors.New("refused"), "klog says three")
	log.Printf("log says %d\nin two lines", 4)
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
	var again eventually.Buffer
	if got := run(t.Context(), []string{"--roles=data", "--store=sqlite:/does/not/exist", "--listen-grpc=localhost:0", "--listen-web=", "--log-format=json"}, &again, &again); got != 1 {
		t.Errorf("exit code %d with a store that does not exist", got)
	}
	said := map[string]bool{}
	for line := range bytes.Lines([]byte(out.String() + again.String())) {
		var entry struct{ Msg, Err string }
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Errorf("a line is not JSON: %s", line)
		}
		said[entry.Msg] = true
		said[entry.Err] = true
	}
	for _, text := range []string{"grpc says 1", "grpc whispers", "klog says 2", "klog says three", "log says 4\nin two lines"} {
		if !said[text] {
			t.Errorf("the log lacks %q:\n%s", text, &out)
		}
	}
	if !strings.Contains(again.String(), "/does/not/exist") {
		t.Errorf("the log lacks the reason that the server did not start: %s", &again)
	}
}

func TestSecondServerOnOneFileDoesNotStart(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	folder := t.TempDir()
	args := []string{
		"--roles=data", "--store=sqlite:" + filepath.Join(folder, "tko.db"), "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=",
	}
	var first, second eventually.Buffer
	ready := filepath.Join(folder, "ready.json")
	code := make(chan int, 1)
	go func() { code <- run(ctx, append(args, "--ready-file="+ready), &first, &first) }()
	waitReady(t, ready, code, &first)
	if got := run(t.Context(), args, &second, &second); got != 1 || !strings.Contains(second.String(), "in use by another server") || !strings.Contains(second.String(), "tko.db") {
		t.Errorf("exit code %d, want 1, and the file that is in use:\n%s", got, &second)
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("the first server: exit code %d\n%s", got, &first)
	}
}
