package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// timeLimit bounds waits. It is generous for busy machines.
const timeLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	process.Plain()
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// stores are the stores that the tests run on, by name.
var stores = map[string]func(t *testing.T) string{
	"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "tko.db") },
	"PostgreSQL": func(t *testing.T) string { return pgtest.DSN(t) },
}

// The package of a site and a template that exist before the test.
const keptPackage = "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}, data: {is: kept}}"

// A world is a server with entities that must not be lost.
type world struct {
	*client.Client

	t      *testing.T
	server *process.Server
	data   tkopb.DataClient // for requests that the Go client can't send
	good   int              // good requests so far
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	args = append([]string{"--modification-time=5m"}, args...) // large requests take long on busy machines
	server := process.StartServer(t, args...)
	w := &world{Client: dial(t, server.GRPC), t: t, server: server, data: tkopb.NewDataClient(connect(t, server.GRPC))}
	ctx := patient(t)
	kept := parse(t, keptPackage)
	if _, err := w.RegisterTemplate(ctx, tko.Template{ID: "kept", Metadata: map[string]string{"is": "kept"}, Package: kept}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(ctx, tko.Site{ID: "kept", Metadata: map[string]string{"is": "kept"}, Package: kept}); err != nil {
		t.Fatal(err)
	}
	return w
}

func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Address: address, WaitForReady: true, Author: tko.Author{Who: "test", Why: t.Name()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func connect(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30), grpc.MaxCallRecvMsgSize(1<<30)))
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	t.Cleanup(cancel)
	return ctx
}

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// position returns the position of the newest change. While it stays the same,
// nothing was stored.
func (w *world) position() int64 {
	w.t.Helper()
	about, err := w.About(patient(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return about.Position
}

// harmless calls bad, and checks that nothing was stored or lost, and that the server
// continues to work.
func (w *world) harmless(t *testing.T, bad func(ctx context.Context)) {
	t.Helper()
	before := w.position()
	bad(patient(t))
	if after, found := w.position(), w.inspected(t, before); after > before+found {
		t.Errorf("something was stored: the position went from %d to %d", before, after)
	}
	w.goesOn(t)
}

// inspected returns how many plugins have changed since a position: the server looks
// at their programs from time to time, and sets their condition Runnable.
func (w *world) inspected(t *testing.T, since int64) (n int64) {
	t.Helper()
	for p, err := range w.Plugins(patient(t), tko.PluginSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Stamp.Position > since {
			n++
		}
	}
	return n
}

// goesOn checks that the existing entities are unchanged, and that the server serves
// and stores valid requests.
func (w *world) goesOn(t *testing.T) {
	t.Helper()
	ctx := patient(t)
	template, err := w.Template(ctx, "kept", 0)
	if err != nil || template.Stamp.Revision != 1 || !maps.Equal(template.Metadata, map[string]string{"is": "kept"}) || len(template.Package) != 1 {
		t.Errorf("the template that was there before: %+v, %v", template, err)
	}
	site, err := w.Site(ctx, "kept", 0)
	if err != nil || site.Stamp.Revision != 1 || len(site.Package) != 1 {
		t.Errorf("the site that was there before: %+v, %v", site, err)
	}
	w.good++
	want := strconv.Itoa(w.good)
	if _, err := w.RegisterTemplate(ctx, tko.Template{ID: "good", Metadata: map[string]string{"count": want}}); err != nil {
		t.Errorf("a good request afterwards: %v", err)
	}
	if template, err = w.Template(ctx, "good", 0); err != nil || template.Metadata["count"] != want {
		t.Errorf("a good request afterwards: %+v, %v", template, err)
	}
}

// memory returns the peak memory of a process, in bytes.
func memory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kB, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kB << 10
		}
	}
	t.Fatalf("process %d has no VmHWM", pid)
	return 0
}

// bounded checks the peak memory of the server.
func (w *world) bounded(t *testing.T) {
	t.Helper()
	const most = 3 << 29 // 1.5 GiB
	limit := int64(most)
	if process.Race() {
		limit *= 8 // the race detector's shadow memory
	}
	if used := memory(t, w.server.PID); used > limit {
		t.Errorf("the server had %d MiB, want at most %d", used>>20, limit>>20)
	} else {
		t.Logf("the server had at most %d MiB", used>>20)
	}
}

// names checks that an error contains the wanted texts, is short, and leaks nothing.
func names(t *testing.T, message string, wanted ...string) {
	t.Helper()
	t.Logf("%.300s", message)
	for _, text := range wanted {
		if !strings.Contains(message, text) {
			t.Errorf("the error lacks %q:\n%.2000s", text, message)
		}
	}
	if len(message) > 20<<10 {
		t.Errorf("the error has %d bytes, which is too long to read", len(message))
	}
	for _, leak := range []string{"goroutine ", "panic", "runtime error", "SELECT ", "pgx", "sqlite3"} {
		if strings.Contains(message, leak) {
			t.Errorf("the error leaks %q:\n%.2000s", leak, message)
		}
	}
}

// tkoWith runs tko with stdin.
func (w *world) tkoWith(ctx context.Context, t *testing.T, stdin []byte, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, process.Build(t, "tko"), args...)
	cmd.Env = append(os.Environ(), w.server.Env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// waitFor waits until so returns true. The text describes the current state.
func waitFor(t *testing.T, what string, so func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx := patient(t)
	eventually.Within(t, timeLimit, what, func() error {
		if ok, now := so(ctx); !ok {
			return errors.New(now)
		}
		return nil
	})
}

func newDeployment(template tko.TemplateID) tko.NewDeployment {
	return tko.NewDeployment{Template: template}
}

// textFile writes a file, and returns its path.
func textFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
