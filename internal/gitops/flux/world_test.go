package flux_test

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// waitLimit bounds each wait, as it does those of kubectl.
const waitLimit = 4 * time.Minute

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

const definition = "../../../deploy/kubernetes/components/gitops/crd.yaml"

var (
	install    sync.Once
	namespaces atomic.Int32 // created so far
)

// A world is a namespace in a cluster with the CRDs of Flux and TKO, a data
// controller, and the GitOps controller.
type world struct {
	*testing.T
	*kube.Cluster
	*fluxtest.Publisher
	data      *client.Client
	namespace string
	log       *eventually.Buffer

	connections string // directory of connection files
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

// worldWithout returns a world whose GitOps controller isn't started.
func worldWithout(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Cluster: cluster(t), data: data(t), log: &eventually.Buffer{}, namespace: fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), namespaces.Add(1))}
	w.Kubectl(t, "create", "namespace", w.namespace)
	w.Publisher = fluxtest.Start(t, w.Cluster)
	return w
}

// start runs the GitOps controller for the world's namespace until the test ends.
func (w *world) start(t *testing.T, o flux.Options) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(w.log, nil))
	o.Namespaces, o.Worker, o.Log, o.Fetch.Dir, o.Fetch.Pause = []string{w.namespace}, "test", log, t.TempDir(), 10*time.Millisecond
	o.Wait, o.Poll = 50*time.Millisecond, 50*time.Millisecond
	engine := gitops.New(w.data, gitops.Options{Worker: "test", Log: log, Connections: []string{w.connections}})
	controller, err := flux.New(kubetest.Config(w.Cluster), engine, o)
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

// data starts a data controller in memory and returns its client.
func data(t testing.TB) *client.Client {
	t.Helper()
	return grpctest.Start(t, client.Options{Author: tko.Author{Who: "test"}})
}

// source returns a source of Flux in the world's namespace.
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

// field returns the field of a GitOps object at a JSONPath; "" if there is none.
func (w *world) field(name, path string) string {
	w.Helper()
	stdout, _, _ := w.Try(w.T, w.Kubeconfig, "", "-n", w.namespace, "get", "gitops", name, "-o", "jsonpath={"+path+"}")
	return stdout
}

// eventually waits until condition returns true. A failure shows the GitOps objects.
func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	soon := time.Now().Add(waitLimit - 10*time.Second) // reading the objects takes time, too
	eventually.Within(w.T, waitLimit, what, func() error {
		switch {
		case condition():
			return nil
		case time.Now().Before(soon):
			return errors.New("the condition is false")
		default:
			return errors.New(w.Kubectl(w.T, "-n", w.namespace, "get", "gitops", "-o", "yaml"))
		}
	})
}

// becomes waits until a field of a GitOps object has a value.
func (w *world) becomes(name, path, want string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s of %s is %q", path, name, want), func() bool { return w.field(name, path) == want })
}

const readyMessage, readyReason, readyStatus = `.status.conditions[?(@.type=="Ready")].message`, `.status.conditions[?(@.type=="Ready")].reason`, `.status.conditions[?(@.type=="Ready")].status`

// value returns the value in a template's ConfigMap; "" if there is none.
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
