package sibling_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/sibling/siblingtest"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/internal/version"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// The test's program is its own sibling if this variable is set.
const childVariable = "TKO_TEST_SIBLING"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type settings struct {
	Name    string
	Version string // that the program has
	Refuse  string // why it can't serve
	Killed  string // file that the program makes before it is killed; if it exists, the program serves
}

func child() error {
	if v := os.Getenv("TKO_TEST_VERSION"); v != "" {
		version.Version = v
	}
	var s settings
	parent, ctx, err := sibling.Inherit(&s)
	if err != nil {
		return err
	}
	if s.Killed != "" {
		file, err := os.OpenFile(s.Killed, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = file.Close()
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	if s.Refuse != "" {
		parent.Failed(tko.Errorf(tko.ErrInvalid, "%s", s.Refuse))
		return nil
	}
	listeners, err := parent.Listeners("echo")
	if err != nil {
		return err
	}
	return parent.Serve(ctx, sibling.Endpoint{
		"request": sibling.Unary(func(ctx context.Context, _ string) (string, error) {
			var response string
			err := sibling.Call(ctx, parent.Peer, "request", "", &response)
			return response + " " + trail.Request(ctx) + " " + trail.TraceID(ctx), err
		}),
		"name": sibling.Unary(func(ctx context.Context, greeting string) (string, error) {
			var response string
			err := sibling.Call(ctx, parent.Peer, "answer", greeting+" "+s.Name, &response)
			return fmt.Sprintf("%s over %d listeners", response, len(listeners)), err
		}),
	})
}

func program(t *testing.T, o sibling.Options) *sibling.Program {
	t.Helper()
	t.Setenv(childVariable, "1")
	if o.Command == nil {
		o.Command = os.Executable
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	o.Name, o.Pause = "test-sibling", time.Millisecond
	if o.Settings == nil {
		o.Settings = settings{Name: "child"}
	}
	o.Files = map[string]sibling.Files{"echo": {l.(*net.TCPListener)}}
	o.Methods = sibling.Endpoint{"request": sibling.Unary(func(ctx context.Context, _ string) (string, error) {
		return trail.Request(ctx) + " " + trail.TraceID(ctx), nil
	}), "answer": sibling.Unary(func(_ context.Context, text string) (string, error) { return "heard " + text, nil })}
	o.Stdout, o.Stderr = t.Output(), t.Output()
	p := sibling.New(o)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !o.Required {
			t.Error(err)
		}
	})
	return p
}

func greet(t *testing.T, p *sibling.Program) error {
	t.Helper()
	peer, err := p.Peer(t.Context())
	if err != nil {
		return err
	}
	var got string
	if err := sibling.Call(t.Context(), peer, "name", "hello", &got); err != nil {
		return err
	}
	if want := "heard hello child over 1 listeners"; got != want {
		t.Fatalf("the response is %q, want %q", got, want)
	}
	return nil
}

func TestProgramStartsWhenItIsFirstNeeded(t *testing.T) {
	p := program(t, sibling.Options{})
	if p.PID() != 0 || p.Problem() != nil {
		t.Fatalf("it runs as %d before it is needed: %v", p.PID(), p.Problem())
	}
	if err := greet(t, p); err != nil {
		t.Fatal(err)
	}
	if p.Problem() != nil {
		t.Errorf("it serves, and has the problem %v", p.Problem())
	}
	pid := p.PID()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("process %d: %v", pid, err)
	}
}

func TestCallsKeepTheirRequestAndTraceInBothDirections(t *testing.T) {
	p := program(t, sibling.Options{})
	ctx := trail.WithNewTrace(trail.WithRequest(t.Context(), "r-1"))
	peer, err := p.Peer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := sibling.Call(ctx, peer, "request", "", &got); err != nil {
		t.Fatal(err)
	}
	if want := "r-1 " + trail.TraceID(ctx); got != want+" "+want {
		t.Errorf("the processes have the requests and traces %q, want %q twice", got, want)
	}
}

func TestKilledProgramIsStartedAgain(t *testing.T) {
	p := program(t, sibling.Options{})
	if err := greet(t, p); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		was := p.PID()
		if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually.NoError(t, "the program to serve again", func() error {
			if p.PID() == was {
				return errors.New("the killed process is still recorded")
			}
			return greet(t, p)
		})
	}
}

func TestMissingProgramIsNamedWithReasonAndRemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := sibling.New(sibling.Options{Name: "tko-missing", Purpose: "the tests", Pause: time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	_, err := p.Peer(t.Context())
	own, _ := os.Executable()
	for _, part := range []string{"tko-missing", own, "PATH", "install it", "the tests"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error %v lacks %q", err, part)
		}
	}
	if !errors.Is(err, tko.ErrUnavailable) || p.Problem() == nil {
		t.Errorf("the error is %v and the problem %v, want an ErrUnavailable", err, p.Problem())
	}
	stop()
	<-ended
}

func TestRequiredProgramThatRefusesEndsTheServer(t *testing.T) {
	p := program(t, sibling.Options{Required: true, Settings: settings{Refuse: "the certificate is missing"}})
	_, err := p.Peer(t.Context())
	if err == nil || err.Error() != "the certificate is missing" || !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the error is %v, want the program's own", err)
	}
}

func TestRequiredProgramThatIsKilledWhileItStartsIsStartedAgain(t *testing.T) {
	p := program(t, sibling.Options{Required: true, Settings: settings{Name: "child", Killed: filepath.Join(t.TempDir(), "killed")}})
	eventually.NoError(t, "the program to serve", func() error { return greet(t, p) })
}

func TestProgramOfAnotherReleaseIsRefused(t *testing.T) {
	t.Setenv("TKO_TEST_VERSION", "v0.0.1-other")
	p := program(t, sibling.Options{Required: true})
	_, err := p.Peer(t.Context())
	if err == nil || !strings.Contains(err.Error(), "v0.0.1-other") || !strings.Contains(err.Error(), "install both from the same release") {
		t.Errorf("the error is %v, want both versions and the remedy", err)
	}
}

func TestProgramThatIsNoSiblingIsReported(t *testing.T) {
	script := filepath.Join(t.TempDir(), "false")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := program(t, sibling.Options{Required: true, Command: func() (string, error) { return script, nil }})
	if _, err := p.Peer(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error is %v, want its exit status", err)
	}
}

func TestErrorsAndContextsCrossTheConnection(t *testing.T) {
	t.Parallel()
	finding := tko.Finding{Resource: krm.Identity{GVK: krm.GVK{Kind: "Site"}, Name: "x"}, Path: "spec", Reason: "is wrong"}
	peer := siblingtest.Connect(t, sibling.Endpoint{
		"kind": sibling.Unary(func(context.Context, int) (int, error) { return 0, tko.NotFound(tko.KindSite, "nowhere") }),
		"type": sibling.Unary(func(context.Context, int) (int, error) {
			return 0, fmt.Errorf("refused: %w", &tko.InvalidPackageError{Findings: []tko.Finding{finding}, ByTemplates: true})
		}),
		"context": sibling.Unary(func(ctx context.Context, _ int) (map[string]any, error) {
			count, _ := tko.ConfirmationOf(ctx)
			return map[string]any{"who": tko.AuthorOf(ctx).Who, "count": count, "required": tko.PackageRequired(ctx)}, nil
		}),
		"wait": sibling.Unary(func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() }),
	})
	if err := sibling.Call(t.Context(), peer, "kind", 0, nil); !errors.Is(err, tko.ErrNotFound) || err.Error() != `site "nowhere": not found` {
		t.Errorf("the error is %v", err)
	}
	err := sibling.Call(t.Context(), peer, "type", 0, nil)
	invalid, ok := errors.AsType[*tko.InvalidPackageError](err)
	if !ok || len(invalid.Findings) != 1 || invalid.Findings[0] != finding || !invalid.ByTemplates || !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the error is %v with %+v", err, invalid)
	}
	var got map[string]any
	ctx := tko.WithPackageRequired(tko.WithConfirmation(tko.WithAuthor(t.Context(), tko.Author{Who: "ana"}), 7))
	if err := sibling.Call(ctx, peer, "context", 0, &got); err != nil || got["who"] != "ana" || got["count"] != int64(7) || got["required"] != true {
		t.Errorf("the context has %v, error %v", got, err)
	}
	stopped := errors.New("stopped by the caller")
	waiting, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	if err := sibling.Call(waiting, peer, "wait", 0, nil); !errors.Is(err, stopped) {
		t.Errorf("the error is %v, want the context's cause", err)
	}
}

func TestPackagesKeepTheirValues(t *testing.T) {
	t.Parallel()
	pkg := krm.Package{{"apiVersion": "v1", "kind": "X", "spec": map[string]any{
		"integer": int64(1 << 53), "real": 1.0, "text": "é", "list": []any{int64(-1), nil, true, map[string]any{}}, "empty": []any{},
	}}}
	peer := siblingtest.Connect(t, sibling.Endpoint{"echo": sibling.Unary(func(_ context.Context, p krm.Package) (krm.Package, error) { return p, nil })})
	var got krm.Package
	if err := sibling.Call(t.Context(), peer, "echo", pkg, &got); err != nil {
		t.Fatal(err)
	}
	want, _, err := krm.DigestOf(pkg)
	if err != nil {
		t.Fatal(err)
	}
	if digest, _, err := krm.DigestOf(got); err != nil || digest != want {
		t.Errorf("the package is %#v, want %#v", got, pkg)
	}
}

// Every kind of error is known on the other side, with its text.
func TestErrorsInTransitKeepTheirKinds(t *testing.T) {
	for _, kind := range []error{
		tko.ErrInvalid, tko.ErrNotFound, tko.ErrConflict, tko.ErrBusy, tko.ErrDenied, tko.ErrUnauthenticated, tko.ErrGone, tko.ErrUnavailable,
		context.Canceled, context.DeadlineExceeded,
	} {
		failure := fmt.Errorf("read: %w", kind)
		if err := sibling.NewFailure(failure).Err(); !errors.Is(err, kind) || err.Error() != failure.Error() {
			t.Errorf("%q arrives as %q, of its kind: %t", failure, err, errors.Is(err, kind))
		}
	}
}
