package hostile

import (
	"bytes"
	"context"
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
	"github.com/tko-orchestrator/tko/test/process"
)

// patience is how long anything may take on a busy machine.
const patience = 4 * time.Minute

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// stores are the stores that tests run on, by name.
var stores = map[string]func(t *testing.T) string{
	"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "tko.db") },
	"PostgreSQL": func(t *testing.T) string { return pgtest.DSN(t) },
}

// The site's and template's package that is there before anything bad comes.
const keptPackage = "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}, data: {is: kept}}"

// A world is a server with something in it that is worth keeping.
type world struct {
	*client.Client

	t      *testing.T
	server *process.Server
	data   tkopb.DataClient // for what our own client would not send
	good   int              // good requests so far
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	args = append([]string{"--modification-time=5m"}, args...) // what is large takes its time on busy machines
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

// position is that of the newest change: while it stays, nothing was stored.
func (w *world) position() int64 {
	w.t.Helper()
	about, err := w.About(patient(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	return about.Position
}

// harmless does something bad, and checks that nothing was stored, that
// nothing was lost, and that the server goes on.
func (w *world) harmless(t *testing.T, bad func(ctx context.Context)) {
	t.Helper()
	before := w.position()
	bad(patient(t))
	if after := w.position(); after != before {
		t.Errorf("something was stored: the position went from %d to %d", before, after)
	}
	w.goesOn(t)
}

// goesOn checks that what was there is there, and that the server answers and
// stores what is good.
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

// memory is the most that a process ever had, in bytes.
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

// bounded checks that a server never had too much memory.
func (w *world) bounded(t *testing.T) {
	t.Helper()
	const most = 3 << 29 // 1.5 GiB
	limit := int64(most)
	if process.Race {
		limit *= 8 // its shadow
	}
	if used := memory(t, w.server.PID); used > limit {
		t.Errorf("the server had %d MiB, want at most %d", used>>20, limit>>20)
	} else {
		t.Logf("the server had at most %d MiB", used>>20)
	}
}

// names checks that an error names what it should.
func names(t *testing.T, message string, wanted ...string) {
	t.Helper()
	t.Logf("%.300s", message)
	for _, text := range wanted {
		if !strings.Contains(message, text) {
			t.Errorf("the error does not say %q:\n%.2000s", text, message)
		}
	}
	if len(message) > 20<<10 {
		t.Errorf("the error has %d bytes, which nobody reads", len(message))
	}
	for _, leak := range []string{"goroutine ", "panic", "runtime error", "SELECT ", "pgx", "sqlite3"} {
		if strings.Contains(message, leak) {
			t.Errorf("the error leaks %q:\n%.2000s", leak, message)
		}
	}
}

// tkoWith runs the command with something on its stdin.
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

// eventually polls until something is so.
func eventually(t *testing.T, what string, so func(ctx context.Context) (bool, string)) {
	t.Helper()
	ctx := patient(t)
	for {
		ok, now := so(ctx)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s, but: %s", what, patience, now)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func newDeployment(template tko.TemplateID) tko.NewDeployment {
	return tko.NewDeployment{Template: template}
}

// textFile writes a file, and answers its path.
func textFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
