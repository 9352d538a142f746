package tkoserver

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestExitCodes(t *testing.T) {
	tests := map[string]struct {
		why  string
		args []string
		code int
		want string
	}{
		"help":             {why: "it describes the server", args: []string{"--help"}, code: 0, want: "loopback"},
		"version":          {why: "it names the version", args: []string{"--version"}, code: 0, want: "version"},
		"unknown flag":     {why: "a typo", args: []string{"--rolls=data"}, code: 2, want: "unknown flag: --rolls: did you mean --roles?"},
		"argument":         {why: "there are none", args: []string{"data"}, code: 2, want: "data"},
		"exposed metrics":  {why: "beyond loopback, they need TLS and identities", args: []string{"--listen-metrics=*:0"}, code: 2, want: "--listen-metrics=*:0"},
		"unknown role":     {why: "a typo", args: []string{"--roles=cook"}, code: 2, want: "cook"},
		"unknown store":    {why: "it lists the kinds", args: []string{"--store=mysql://root@db", "--listen-grpc=localhost:0", "--listen-web="}, code: 2, want: "sqlite:PATH"},
		"no such file":     {why: "it names the file", args: []string{"--config=/does/not/exist.yaml"}, code: 2, want: "/does/not/exist.yaml"},
		"store can't open": {why: "it names the file", args: []string{"--store=sqlite:/does/not/exist/tko.db", "--listen-grpc=localhost:0", "--listen-web="}, code: 1, want: "/does/not/exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out eventually.Buffer
			if code := run(t.Context(), test.args, &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, want %d with %q: %s\n%s", code, test.code, test.want, test.why, &out)
			}
		})
	}
}

// The original client connects to the machine's own address by default, which a
// server on loopback does not serve.
func TestFirstLinesWarnAboutLoopback(t *testing.T) {
	for address, want := range map[string]bool{"localhost:0": true, "*:0": false} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var out eventually.Buffer
		ready := filepath.Join(t.TempDir(), "ready.json")
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, []string{
				"--insecure", "--log-format=text", "--store=sqlite::memory:", "--listen-grpc=" + address, "--listen-web=", "--listen-log=", "--ready-file=" + ready, "--git-cache=" + t.TempDir(),
			}, &out, &out)
		}()
		waitReady(t, ready, code, &out)
		first, _, _ := strings.Cut(out.String(), "msg=serving ")
		said := strings.Contains(first, "loopback only") && strings.Contains(first, "--listen-grpc=*:50050") && strings.Contains(first, "--grpc-address=localhost")
		if said != want {
			t.Errorf("%s: the first lines are\n%s", address, first)
		}
		stop()
		<-code
	}
}

// Only one server of a machine can listen at the default address of plugins' logs.
// Others start without it.
func TestSecondServerStartsWithoutLogServer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var outs [2]eventually.Buffer
	var running sync.WaitGroup
	for i := range outs {
		ready := filepath.Join(t.TempDir(), "ready.json")
		code := make(chan int, 1)
		running.Go(func() {
			code <- run(ctx, []string{"--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--ready-file=" + ready, "--git-cache=" + t.TempDir()}, &outs[i], &outs[i])
		})
		waitReady(t, ready, code, &outs[i])
	}
	if !strings.Contains(outs[1].String(), "another server uses the address") {
		t.Errorf("the second server does not log that:\n%s", &outs[1])
	}
	stop()
	running.Wait()
	var out eventually.Buffer
	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if code := run(t.Context(), []string{"--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--listen-log=" + held.Addr().String()}, &out, &out); code != 1 {
		t.Errorf("exit code %d with a configured address that is in use, want 1\n%s", code, &out)
	}
}

func TestServerPreparesAndStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out eventually.Buffer
	ready := filepath.Join(t.TempDir(), "ready.json")
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"--store=sqlite::memory:", "--listen-grpc=localhost:0", "--listen-web=localhost:0", "--listen-log=localhost:0",
			"--ready-file=" + ready, "--git-cache=" + t.TempDir(), "--log-format=json",
		}, &out, &out)
	}()
	address := waitReady(t, ready, code, &out)
	c, err := client.Dial(client.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the prepared deployment", func() bool {
		d, err := c.Deployment(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d.Prepared
	})
	stop()
	select {
	case got := <-code:
		if got != 0 {
			t.Errorf("exit code %d\n%s", got, &out)
		}
	case <-time.After(eventually.Limit):
		t.Fatalf("does not stop\n%s", &out)
	}
}

func waitReady(t *testing.T, path string, code chan int, out *eventually.Buffer) string {
	t.Helper()
	var addresses struct{ GRPC []string }
	eventually.True(t, "the server", func() bool {
		select {
		case got := <-code:
			t.Fatalf("the server ended with exit code %d\n%s", got, out)
		default:
		}
		data, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(data, &addresses) == nil
	})
	return addresses.GRPC[0]
}
