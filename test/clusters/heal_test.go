package clusters_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// healed is the number of objects of the site.
const healed = 400

// The bounds of repairs are generous, because machines of tests are busy; the log has the times.
const (
	isolatedBound = 15 * time.Second // of one object
	manyBound     = 60 * time.Second // of 200 objects
	returnBound   = 60 * time.Second // of an apply, after the API server is back
)

// A patient is a site whose objects other clients change.
type patient struct {
	t          *testing.T
	cluster    *kube.Cluster
	clientset  *kubernetes.Clientset
	objects    typed.ConfigMapInterface
	tko        *client.Client
	deployment tko.DeploymentID
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, cluster: kube.Start(t, kube.Options{})}
	clientset, err := kubernetes.NewForConfig(kubetest.Config(p.cluster))
	if err != nil {
		t.Fatal(err)
	}
	p.clientset, p.objects = clientset, clientset.CoreV1().ConfigMaps("default")
	folder := t.TempDir()
	text, err := os.ReadFile(p.cluster.Kubeconfig)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "edge.yaml"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := process.StartServer(t, "--roles=data,preparer,meta-scheduler", "--store=sqlite::memory:", "--kubeconfigs="+folder)
	if p.tko, err = client.Dial(client.Options{Address: server.GRPC, WaitForReady: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.tko.Close() })
	site := krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{
		"kubeconfig": map[string]any{"file": "edge.yaml"}, "prune": map[string]any{"percent": 100},
	}}
	if _, err := p.tko.RegisterSite(t.Context(), tko.Site{ID: "edge", Package: krm.Package{site}}); err != nil {
		t.Fatal(err)
	}
	if p.deployment, err = p.tko.CreateDeployment(t.Context(), tko.NewDeployment{Site: "edge", Merge: healedPackage("1")}); err != nil {
		t.Fatal(err)
	}
	p.until(timeLimit, "1", healed)
	return p
}

func healedPackage(value string) krm.Package {
	pkg := krm.Package{{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "busy", "namespace": "default"},
		"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}},
	}}
	for i := range healed {
		pkg = append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name(i), "namespace": "default"}, "data": map[string]any{"k": value}})
	}
	return pkg
}

// notHealed returns the resources of a package that healedPackage doesn't have.
func notHealed(pkg krm.Package) krm.Package {
	return slices.DeleteFunc(pkg, func(r krm.Resource) bool { kind := r.GVK().Kind; return kind == "ConfigMap" || kind == "Service" })
}

func name(i int) string { return "m-" + strconv.Itoa(i) }

// have returns the number of objects with a value.
func (p *patient) have(value string) (n int, err error) {
	list, err := p.objects.List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, m := range list.Items {
		if m.Data["k"] == value && strings.HasPrefix(m.Name, "m-") && m.DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}

// until waits until a number of objects have a value, and returns how long that took.
func (p *patient) until(limit time.Duration, value string, count int) time.Duration {
	p.t.Helper()
	began := time.Now()
	eventually.Within(p.t, limit, fmt.Sprintf("%d objects to have the value %s", count, value), func() error {
		n, err := p.have(value)
		if err == nil && n < count {
			err = fmt.Errorf("%d have it", n)
		}
		return err
	})
	return time.Since(began)
}

// busy changes the status of an object, and the content of another one, all the time, as other
// controllers do, until stop is called.
func (p *patient) busy() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			status := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.%d"}]}}}`, n%250+1)
			_, _ = p.clientset.CoreV1().Services("default").Patch(ctx, "busy", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
			_, _ = p.objects.Patch(ctx, name(0), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n), metav1.PatchOptions{})
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

// A site repairs itself soon, however busy it is: one object that another client deleted or
// changed, and half of all objects; and it is complete soon after the API server died in the middle
// of an apply.
func TestSitesHealThemselvesInTime(t *testing.T) {
	p := newPatient(t)
	ctx := t.Context()
	stop := p.busy()
	time.Sleep(20 * time.Second) // what other controllers do becomes the usual
	var longest time.Duration
	for i := range 6 {
		if i%2 == 0 {
			if err := p.objects.Delete(ctx, name(i+10), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		} else if _, err := p.objects.Patch(ctx, name(i+10), types.MergePatchType, []byte(`{"data":{"k":"drift"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, p.until(isolatedBound, "1", healed))
		time.Sleep(2 * time.Second)
	}
	t.Logf("an isolated change was repaired within %s", longest.Round(time.Millisecond))

	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := 100 + worker; i < 300; i += 8 {
				if err := p.objects.Delete(ctx, name(i), metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete %d: %v", i, err)
				}
			}
		})
	}
	wait.Wait()
	began := time.Now()
	p.until(manyBound, "1", healed)
	t.Logf("200 of %d deleted objects were back after %s", healed, time.Since(began).Round(time.Millisecond))
	stop()

	m, err := p.tko.StartModification(ctx, p.deployment)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.tko.EndModification(ctx, m.Token, append(notHealed(m.Package), healedPackage("2")...)); err != nil {
		t.Fatal(err)
	}
	p.until(timeLimit, "2", 20)
	p.cluster.StopAPI()
	time.Sleep(10 * time.Second)
	p.cluster.StartAPI(t)
	t.Logf("an apply was complete %s after the API server was back", p.until(returnBound, "2", healed).Round(time.Millisecond))
}
