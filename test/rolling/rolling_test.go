package rolling

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	process.Clean()
	os.Exit(code)
}

// previous is the commit of the earlier version, and its newest schema.
const (
	previous       = "aa0976ba180d4b83b59a82dcfd478a48801102f5"
	previousSchema = "54"
)

// buildPrevious builds the server of the earlier version. A shallow clone doesn't have
// it: then the present version stands in, and the test is about the procedure only.
func buildPrevious(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Log("there is no repository: the present version stands in for the earlier one")
		return process.Build(t, "tko-server")
	}
	source := t.TempDir()
	archive := exec.Command("git", "archive", "--format=tar", "--output="+filepath.Join(source, "source.tar"), previous)
	archive.Dir = strings.TrimSpace(string(root))
	if out, err := archive.CombinedOutput(); err != nil {
		t.Logf("the clone lacks the commit %s: the present version stands in for the earlier one: %s", previous, out)
		return process.Build(t, "tko-server")
	}
	for _, args := range [][]string{{"tar", "-xf", "source.tar"}, {"go", "build", "-trimpath", "-o", "tko-server", "./cmd/tko-server"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return filepath.Join(source, "tko-server")
}

// A writer writes through one server until it is stopped.
type writer struct {
	name string
	stop context.CancelFunc
	done sync.WaitGroup

	mutex        sync.Mutex
	acknowledged []tko.TemplateID
}

func (w *writer) count() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.acknowledged)
}

// write starts a writer. A server may end: errors are not acknowledged.
func write(t *testing.T, s *process.Server, name string) *writer {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC, Author: tko.Author{Who: name}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{name: name, stop: stop}
	w.done.Go(func() {
		defer func() { _ = c.Close() }()
		for i := 0; ctx.Err() == nil; i++ {
			id := tko.TemplateID(fmt.Sprintf("%s/%06d", name, i))
			resource := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			_, err := c.RegisterTemplate(call, tko.Template{ID: id, Package: krm.Package{resource}, Metadata: map[string]string{"writer": name}})
			cancel()
			if err == nil {
				w.mutex.Lock()
				w.acknowledged = append(w.acknowledged, id)
				w.mutex.Unlock()
			}
		}
	})
	return w
}

func (w *writer) end() {
	w.stop()
	w.done.Wait()
}

// more waits until writers have written more.
func more(t *testing.T, writers ...*writer) {
	t.Helper()
	for _, w := range writers {
		before := w.count()
		eventually.True(t, "more writes of "+w.name, func() bool { return w.count() >= before+10 })
	}
}

// check checks that a server has what all writers were acknowledged.
func check(t *testing.T, s *process.Server, writers ...*writer) {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, w := range writers {
		w.mutex.Lock()
		acknowledged := slices.Clone(w.acknowledged) // before the list is read
		w.mutex.Unlock()
		there := map[tko.TemplateID]bool{}
		for found, err := range c.Templates(t.Context(), tko.TemplateSelect{Metadata: map[string]string{"writer": w.name}}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			there[found.ID] = true
		}
		for _, id := range acknowledged {
			if !there[id] {
				t.Errorf("%s was acknowledged, and is missing", id)
			}
		}
	}
}

func TestAdjacentVersionsShareADatabaseDuringAnUpgradeAndBack(t *testing.T) {
	older := buildPrevious(t)
	dsn := pgtest.EmptyDSN(t)
	flags := []string{"--roles=data", "--store=" + dsn}

	old := process.StartOtherServer(t, older, flags...)
	first := write(t, old, "before")
	more(t, first)
	recent := process.StartServer(t, flags...) // migrates
	second := write(t, recent, "after")
	more(t, first, second)
	check(t, old, first, second)
	check(t, recent, first, second)
	first.end()
	old.Stop()
	more(t, second)

	// Back: the older version refuses the schema until it is allowed.
	if older != process.Build(t, "tko-server") {
		refused := exec.Command(older, append(flags, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=")...)
		refused.Env = append(os.Environ(), process.Environment()...)
		if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "newer TKO") {
			t.Fatalf("the older version on the newer schema: %v, want a refusal\n%s", err, out)
		}
	}
	allow := exec.Command(process.Build(t, "tko-server"), "schema", "--store="+dsn, "--allow="+previousSchema)
	if out, err := allow.CombinedOutput(); err != nil {
		t.Fatalf("allow the older version: %v\n%s", err, out)
	}
	again := process.StartOtherServer(t, older, flags...)
	third := write(t, again, "back")
	more(t, second, third)
	second.end()
	recent.Stop()
	more(t, third)
	check(t, again, first, second, third)

	// And forward again, without a migration.
	last := process.StartServer(t, flags...)
	fourth := write(t, last, "again")
	more(t, third, fourth)
	third.end()
	fourth.end()
	check(t, last, first, second, third, fourth)
}
