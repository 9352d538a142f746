package flux_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/fluxtest"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
)

// replica runs a GitOps controller until stop is called or the test ends.
func (w *world) replica(name string, cluster *rest.Config, namespaces ...string) (stop func()) {
	w.Helper()
	engine := gitops.New(w.data, gitops.Options{Worker: name})
	controller, err := flux.New(cluster, engine, flux.Options{
		Namespaces: namespaces, Worker: name, Wait: 5 * time.Second, Discover: 100 * time.Millisecond,
		Fetch: flux.FetchOptions{Dir: w.TempDir(), Pause: 10 * time.Millisecond},
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{engine.Run, controller.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				w.Error(err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.Cleanup(stop)
	return stop
}

// cuttable returns a configuration for the cluster through a proxy. While cut is true,
// the proxy refuses lists and watches of namespaced kinds and serves single reads.
func cuttable(t *testing.T, cluster *rest.Config) (through *rest.Config, cut *atomic.Bool) {
	t.Helper()
	cut = &atomic.Bool{}
	target, err := url.Parse(cluster.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cluster)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		list := r.Method == http.MethodGet && len(parts) == 6 // apis/GROUP/VERSION/namespaces/NAMESPACE/KIND
		if !list {
			proxy.ServeHTTP(w, r)
			return
		}
		if cut.Load() {
			http.Error(w, "cut", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil && !cut.Load() {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
		proxy.ServeHTTP(w, r.WithContext(ctx))
	}))
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, cut
}

// Replicas share sources in several namespaces. A replica whose cache of the
// cluster is old reverts nothing that another has applied.
func TestReplicaWithAnOldCacheAppliesNothing(t *testing.T) {
	t.Parallel()
	w := worldWithout(t)
	other := w.namespace + "-other"
	w.Kubectl(t, "create", "namespace", other)
	here, there := w.source("GitRepository", "fleet"), fluxtest.Source{Kind: "GitRepository", Namespace: other, Name: "fleet"}
	repository, second := fluxtest.NewRepository(t), fluxtest.NewRepository(t)
	repository.Commit(map[string]string{"a.yaml": template("a", "1")})
	second.Commit(map[string]string{"b.yaml": template("b", "1")})
	first := w.Publish(t, here, repository)
	w.Publish(t, there, second)
	w.gitOps("fleet", here)
	elsewhere := *w
	elsewhere.namespace = other
	elsewhere.gitOps("fleet", there)

	through, cut := cuttable(t, kubetest.Config(w.Cluster))
	stopGood := w.replica("good", kubetest.Config(w.Cluster), w.namespace, other)
	w.replica("cut", through, w.namespace, other)
	w.becomes("fleet", ".status.lastAppliedRevision", first.Revision)
	elsewhere.becomes("fleet", readyStatus, "True")
	if a, b := w.value("a"), w.value("b"); a+b != "11" {
		t.Fatalf("a is %q, b is %q; want 1 and 1", a, b)
	}
	name := w.namespace + "/fleet"
	// The replica that will be cut off must have the source in its cache first, so it
	// reconciles once alone.
	stopGood()
	w.Kubectl(t, "-n", w.namespace, "annotate", "gitops/fleet", flux.AnnotationRequested+"=one")
	w.becomes("fleet", ".status.lastHandledReconcileAt", "one")

	cut.Store(true)
	stopGood = w.replica("good", kubetest.Config(w.Cluster), w.namespace, other)
	repository.Commit(map[string]string{"a.yaml": template("a", "2"), "c.yaml": template("c", "1")})
	latest := w.Publish(t, here, repository)
	w.becomes("fleet", ".status.lastAppliedRevision", latest.Revision)
	stopGood()
	for range 3 { // reconciliations of the replica that is cut off
		if err := w.data.EnqueueSources(t.Context(), []string{name}, false, ""); err != nil {
			t.Fatal(err)
		}
		w.eventually("the source is reconciled", func() bool {
			s, err := w.data.Source(t.Context(), name)
			return err == nil && !s.Enqueued
		})
	}
	if a, c := w.value("a"), w.value("c"); a != "2" || c != "1" {
		t.Errorf("the changes of the other replica were reverted: a is %q, c is %q; want 2 and 1", a, c)
	}
	if s, err := w.data.Source(t.Context(), name); err != nil || s.Status.Applied != latest.Revision {
		t.Errorf("the source is at %q, %v; want %q", s.Status.Applied, err, latest.Revision)
	}
	w.Kubectl(t, "-n", other, "delete", "gitops", "fleet", "--wait=false")
	w.Kubectl(t, "-n", w.namespace, "delete", "gitops", "fleet", "--wait=false")
	cut.Store(false) // the replica sees all changes again
	w.eventually("the entities of both objects are deleted", func() bool { return w.value("a")+w.value("b")+w.value("c") == "" })
	for _, removed := range []string{name, other + "/fleet"} {
		w.eventually("the source is removed", func() bool {
			_, err := w.data.Source(t.Context(), removed)
			return errors.Is(err, tko.ErrNotFound)
		})
	}
}
