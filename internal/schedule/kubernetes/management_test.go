package kubernetes_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// The package of a new site has resources for the management cluster. When another
// controller has made the site's cluster from them, the deployments are applied
// there.
func TestSiteIsProvisionedInManagementCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.kubeconfig("management.yaml", w.gate.URL, "")
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Management: filepath.Join(w.dir, "management.yaml")})
	w.set(map[string]any{"clusterAPI": map[string]any{"name": "edge", "namespace": w.ns}}, "kubeconfig")
	here := func(r krm.Resource) krm.Resource {
		r.Set(w.ns, "metadata", "namespace")
		return annotated(r, kubernetes.AnnotationTarget, "management")
	}
	requirement := annotated(resource("infra.nephio.org/v1alpha1", "WorkloadCluster", "edge"), kubernetes.AnnotationTarget, "management")
	w.site.Package = krm.Package{w.cluster, requirement, here(configMap("cluster", "1")), configMap("not-for-it", "1")}
	d := deployment("a", configMap("workload", "1"))

	r, err := w.schedule(t.Context(), d)
	if err == nil || errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "not found yet") {
		t.Error(err)
	}
	same(t, "workloads wait", "Waiting", r.Site.Scheduled.Reason)
	same(t, "what the site is made from", []string{"cluster"}, w.there("ConfigMap"))
	if r.Requeue > kubernetes.Soon {
		t.Errorf("the next reconciliation is after %s", r.Requeue)
	}

	text, err := os.ReadFile(filepath.Join(w.dir, "management.yaml")) // the same cluster, for simplicity
	if err != nil {
		t.Fatal(err)
	}
	s := resource("v1", "Secret", "edge-kubeconfig")
	s["data"] = map[string]any{"value": base64.StdEncoding.EncodeToString(text)}
	w.create(s)
	r = w.reconcile(d)
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied"}, said(r))
	same(t, "what is there", []string{"cluster", "workload"}, w.there("ConfigMap"))
	w.gate.writes.Store(0)
	w.reconcile(d)
	same(t, "writes though nothing changed", int64(0), w.gate.writes.Load())

	// Only the site's package may have resources for the management cluster.
	r, err = w.schedule(t.Context(), deployment("a", configMap("workload", "1"), here(configMap("of-a", "1"))))
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(r.Deployments["a"].Scheduled.Message, "put it into the site's package") {
		t.Errorf("%v: %v", err, r.Deployments["a"].Scheduled)
	}
	same(t, "what is there", []string{"cluster", "workload"}, w.there("ConfigMap"))

	// Problems of those resources don't stop the site's own deployments.
	w.site.Package[2] = here(configMap("Bad_Name", "1"))
	r, err = w.schedule(t.Context(), deployment("a", configMap("workload", "2")))
	if !errors.Is(err, tko.ErrInvalid) || !strings.HasPrefix(r.Site.Scheduled.Message, "in the management cluster: ") || !strings.Contains(r.Site.Scheduled.Message, "Bad_Name") {
		t.Errorf("%v: %v", err, r.Site.Scheduled)
	}
	same(t, "the workload", "2", w.must("ConfigMap", "workload").Text("data", "key"))
	if w.get("ConfigMap", "cluster") == nil {
		t.Error("resources in the management cluster were removed before all of the new ones existed")
	}

	// Removals there always need an approval.
	w.site.Package = krm.Package{w.cluster}
	r = w.reconcile(d)
	same(t, "asked", "WaitsForApproval", r.Site.Scheduled.Reason)
	_, digest, _ := strings.Cut(r.Site.Scheduled.Message, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)
	w.must("ConfigMap", "cluster")
	w.set(digest, "prune", "approve")
	r = w.reconcile(d)
	same(t, "said", "", r.Site.Scheduled.Status)
	same(t, "what is there", []string{"workload"}, w.there("ConfigMap"))
	same(t, "inventory", []string{"a ConfigMap workload"}, w.inventory())
}

func TestMissingManagementClusterIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.site.Package = krm.Package{annotated(configMap("cluster", "1"), kubernetes.AnnotationTarget, "management")}
	r, err := w.schedule(t.Context(), deployment("a", configMap("workload", "1")))
	if err == nil || !strings.Contains(r.Site.Scheduled.Message, "--management-kubeconfig") {
		t.Errorf("%v: %v", err, r.Site.Scheduled)
	}
	same(t, "it is tried again with the back-off of failures", 0, r.Requeue)
	same(t, "the workload is there", []string{"workload"}, w.there("ConfigMap"))
}
