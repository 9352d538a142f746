package flux_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/internal/kube"
)

// patience is how long a test waits for what should happen soon.
const patience = 4 * time.Minute

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

const definition = "../../../deploy/kubernetes/components/gitops/crd.yaml"

var (
	install    sync.Once
	namespaces atomic.Int32 // made so far
)

// A world is a namespace in a cluster with Flux's kinds and ours, a data
// controller, and the role gitops.
type world struct {
	*testing.T
	*kube.Cluster
	*fluxtest.Publisher
	data      *client.Client
	namespace string
	log       *lines

	connections string // folder
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	c := kube.Shared(t, kube.Options{})
	install.Do(func() {
		fluxtest.Install(t, c)
		text, err := os.ReadFile(definition)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, string(text))
		c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=4m", "crd/gitops.tko.nephio.org")
	})
	return c
}

func newWorld(t *testing.T, o flux.Options) *world {
	t.Helper()
	w := worldWithout(t)
	w.start(t, o)
	return w
}

// worldWithout is a world without the role gitops, yet.
func worldWithout(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Cluster: cluster(t), data: data(t), log: &lines{}, namespace: fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), namespaces.Add(1))}
	w.Kubectl(t, "create", "namespace", w.namespace)
	w.Publisher = fluxtest.Start(t, w.Cluster)
	return w
}

// start runs the role gitops, for the world's namespace, until the test ends.
func (w *world) start(t *testing.T, o flux.Options) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(w.log, nil))
	o.Namespaces, o.Worker, o.Log, o.Fetch.Dir, o.Fetch.Pause = []string{w.namespace}, "test", log, t.TempDir(), 10*time.Millisecond
	o.Wait, o.Poll = 50*time.Millisecond, 50*time.Millisecond
	engine := gitops.New(w.data, gitops.Options{Worker: "test", Log: log, Connections: []string{w.connections}})
	controller, err := flux.New(w.Config(), engine, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{engine.Run, controller.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
}

// data is a data controller in memory.
func data(t testing.TB) *client.Client {
	t.Helper()
	return grpctest.Start(t, client.Options{Author: tko.Author{Who: "test"}})
}

// source is a source of Flux in the world's namespace.
func (w *world) source(kind, name string) fluxtest.Source {
	return fluxtest.Source{Kind: kind, Namespace: w.namespace, Name: name}
}

// gitOps applies a GitOps object that refers to a source, with further lines of
// its spec.
func (w *world) gitOps(name string, source fluxtest.Source, spec ...string) {
	w.Helper()
	w.Apply(w.T, fmt.Sprintf(`
apiVersion: tko.nephio.org/v1beta1
kind: GitOps
metadata: {name: %s, namespace: %s}
spec:
  sourceRef: {kind: %s, name: %s}
  prune: true
  %s
`, name, w.namespace, source.Kind, source.Name, strings.Join(append([]string{"interval: 10m"}, spec...), "\n  ")))
}

// field is one of a GitOps object.
func (w *world) field(name, path string) string {
	w.Helper()
	stdout, _, _ := w.Try(w.T, w.Kubeconfig, "", "-n", w.namespace, "get", "gitops", name, "-o", "jsonpath={"+path+"}")
	return stdout
}

// eventually waits until something is so.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("it doesn't come to be: %s\n%s", what, w.Kubectl(w.T, "-n", w.namespace, "get", "gitops", "-o", "yaml"))
		}
	}
}

// becomes waits until a field of a GitOps object is so.
func (w *world) becomes(name, path, want string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s of %s is %q", path, name, want), func() bool { return w.field(name, path) == want })
}

const readyMessage, readyReason, readyStatus = `.status.conditions[?(@.type=="Ready")].message`, `.status.conditions[?(@.type=="Ready")].reason`, `.status.conditions[?(@.type=="Ready")].status`

// value is that of a template's ConfigMap; "" if there is none.
func (w *world) value(id string) string {
	w.Helper()
	t, err := w.data.Template(w.Context(), tko.TemplateID(id), 0)
	if err != nil {
		return ""
	}
	text, err := json.Marshal(t.Package)
	if err != nil {
		w.Fatal(err)
	}
	var resources []struct{ Data struct{ Key string } }
	if err := json.Unmarshal(text, &resources); err != nil || len(resources) != 1 {
		w.Fatalf("%v: %s", err, text)
	}
	return resources[0].Data.Key
}

func template(id, value string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: Template
spec:
  templateId: %q
  package:
    resources:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {key: %q}}
`, id, value)
}
