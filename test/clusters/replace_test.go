package clusters_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// An upgraded is a topology whose placement has a workload at a site, and is upgraded.
type upgraded struct {
	*testing.T

	tko       *client.Client
	topology  tko.DeploymentID
	workloads typed.DeploymentInterface
}

// nfVersion returns a template with a workload of its own name.
func nfVersion(n int, image string) tko.Template {
	app := fmt.Sprintf("nf-v%d", n)
	labels := map[string]any{"app": app}
	return tko.Template{ID: tko.TemplateID(fmt.Sprintf("nf:v%d", n)), Package: krm.Package{{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": app, "namespace": "default"},
		"spec": map[string]any{"replicas": int64(1), "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "nf", "image": image, "ports": []any{map[string]any{"containerPort": int64(80)}}}}},
		}},
	}}}
}

func newUpgraded(t *testing.T) *upgraded {
	t.Helper()
	cluster := kube.Start(t, kube.Options{Controllers: true})
	clientset, err := kubernetes.NewForConfig(kubetest.Config(cluster))
	if err != nil {
		t.Fatal(err)
	}
	r := &upgraded{T: t, workloads: clientset.AppsV1().Deployments("default")}
	folder := t.TempDir()
	text, err := os.ReadFile(cluster.Kubeconfig)
	if err := errors.Join(err, os.WriteFile(filepath.Join(folder, "edge.yaml"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	server := process.StartServer(t, "--roles=data,preparer,meta-scheduler", "--store=sqlite::memory:", "--kubeconfigs="+folder)
	if r.tko, err = client.Dial(client.Options{Address: server.GRPC, WaitForReady: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.tko.Close() })
	resource := func(apiVersion, kind, name string, spec map[string]any) krm.Resource {
		return krm.Resource{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
	}
	site := tko.Site{ID: "edge", Metadata: map[string]string{"tier": "edge"}, Package: krm.Package{
		resource("kubernetes.plugin.nephio.org/v1alpha1", "Cluster", "c", map[string]any{"kubeconfig": map[string]any{"file": "edge.yaml"}}),
	}}
	if _, err := r.tko.RegisterSite(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	for _, v := range []tko.Template{nfVersion(1, "nf"), nfVersion(2, "registry.example/nf:never-ready"), nfVersion(3, "nf")} {
		if _, err := r.tko.RegisterTemplate(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	const topology = "topology.nephio.org/v1alpha1"
	r.topology, err = r.tko.CreateDeployment(t.Context(), tko.NewDeployment{Merge: krm.Package{
		resource(topology, "Template", "nf", map[string]any{"templateId": "nf:v1"}),
		resource(topology, "Sites", "edges", map[string]any{"select": map[string]any{"metadata": map[string]any{"tier": "edge"}}}),
		resource(topology, "Placement", "all", map[string]any{
			"templates": []any{map[string]any{"template": "nf", "sites": []any{"edges"}}}, "update": "Apply",
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// upgrade names another version in the topology.
func (r *upgraded) upgrade(n int) {
	r.Helper()
	m, err := r.tko.StartModification(r.Context(), r.topology)
	if err != nil {
		r.Fatal(err)
	}
	pkg := m.Package.Clone()
	for _, one := range pkg {
		if one.GVK().Group == "topology.nephio.org" && one.GVK().Kind == "Template" {
			one.Set(fmt.Sprintf("nf:v%d", n), "spec", "templateId")
		}
	}
	if _, _, err := r.tko.EndModification(r.Context(), m.Token, pkg); err != nil {
		r.Fatal(err)
	}
}

// until waits until the cluster has these workloads, of which some must be available.
func (r *upgraded) until(what string, names []string, available ...string) (uids map[string]string) {
	r.Helper()
	eventually.Within(r, timeLimit, what, func() error {
		list, err := r.workloads.List(r.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		uids = map[string]string{}
		var there []string
		for _, w := range list.Items {
			if w.DeletionTimestamp != nil {
				continue
			}
			if slices.Contains(available, w.Name) && w.Status.AvailableReplicas == 0 {
				return fmt.Errorf("%s is not available", w.Name)
			}
			there = append(there, w.Name)
			uids[w.Name] = string(w.UID)
		}
		if slices.Sort(there); !slices.Equal(there, names) {
			return fmt.Errorf("there are %q", there)
		}
		return nil
	})
	return uids
}

// A placement whose template names another version makes before it breaks, from the topology to
// the cluster: the old workload stays until the new one is healthy, also if another client
// deletes it meanwhile, and goes then.
func TestPlacementReplacesItsWorkloadOnceTheNewOneIsHealthy(t *testing.T) {
	t.Parallel()
	r := newUpgraded(t)
	r.until("the first version", []string{"nf-v1"}, "nf-v1")

	r.upgrade(2) // never becomes healthy
	was := r.until("both", []string{"nf-v1", "nf-v2"}, "nf-v1")
	if err := r.workloads.Delete(t.Context(), "nf-v1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Within(t, timeLimit, "the old workload is there again", func() error {
		if is := r.until("both", []string{"nf-v1", "nf-v2"}, "nf-v1"); is["nf-v1"] == was["nf-v1"] {
			return errors.New("it is the one that is being deleted")
		}
		return nil
	})
	for d, err := range r.tko.Deployments(t.Context(), tko.DeploymentSelect{Parent: r.topology}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
		if c == nil || c.Reason != "ReplacementWaiting" || !strings.Contains(c.Message, "nf-v1") {
			t.Errorf("the condition of %s is %+v", d.ID, c)
		}
	}

	r.upgrade(3)
	r.until("the third version alone", []string{"nf-v3"}, "nf-v3")
}
