package schedule_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// object is a resource with a value.
func object(kind, namespace, name, value string) krm.Resource {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	r := krm.Resource{"apiVersion": "v1", "kind": kind, "metadata": metadata}
	if kind == "ConfigMap" {
		r["data"] = map[string]any{"key": value}
	} else if value != "" {
		metadata["labels"] = map[string]any{"value": value}
	}
	return r
}

func withPackage(d tko.Deployment, pkg ...krm.Resource) tko.Deployment {
	d.Package = pkg
	return d
}

// message is the message of the Scheduled condition of a deployment.
func (r *records) message(t *testing.T, id tko.DeploymentID) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.deployments[id].Stamp.Conditions {
		if c.Type == tko.ConditionScheduled {
			return c.Message
		}
	}
	t.Errorf("deployment %q has no Scheduled condition", id)
	return ""
}

// checkBoth checks that the conflict of a and b is on both, and names the other.
func checkBoth(t *testing.T, r *records) {
	t.Helper()
	said := r.said()
	for id, other := range map[tko.DeploymentID]string{"a": `deployment "b"`, "b": `deployment "a"`} {
		if got := said[string(id)]; got != "False Conflict @1" {
			t.Errorf("deployment %q says %q", id, got)
		}
		if got := r.message(t, id); !strings.Contains(got, other) || !strings.Contains(got, `ConfigMap "core/upf"`) {
			t.Errorf("deployment %q says %q", id, got)
		}
	}
	if got := said["lagos"]; got != "False Conflict @1" {
		t.Errorf("the site says %q", got)
	}
	if got := said["c"]; !strings.HasPrefix(got, "True ") {
		t.Errorf("a deployment without a conflict says %q", got)
	}
}

func TestTwoDeploymentsWithTheSameObjectAreAConflictInGit(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "lagos.git")
	namespace := object("Namespace", "", "core", "")
	r := world([]tko.Site{site("lagos", repository(repo))}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), namespace, object("ConfigMap", "core", "upf", "1")),
		withPackage(deployment("c", "lagos"), namespace, object("ConfigMap", "core", "smf", "1")),
	})
	s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir()})
	files := func() []string {
		return strings.Fields(gittest.Run(t, repo, "ls-tree", "-r", "--name-only", "main", "lagos/a", "lagos/b", "lagos/c"))
	}
	s.Reconcile(t.Context(), "lagos")
	shared := []string{"lagos/a/00-cluster/Namespace.v1_core.yaml", "lagos/a/10-namespaced/core/ConfigMap.v1_upf.yaml", "lagos/c/10-namespaced/core/ConfigMap.v1_smf.yaml"}
	if diff := cmp.Diff(shared, files()); diff != "" {
		t.Errorf("a namespace that both name alike is there once: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"lagos": "True Scheduled @1", "a": "True Scheduled @1", "c": "True Scheduled @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// The same content is no excuse: one of the two would be pruned with the other.
	r.deployments["b"] = withPackage(deployment("b", "lagos"), object("ConfigMap", "core", "upf", "1"))
	if got := s.Reconcile(t.Context(), "lagos"); got.Outcome != tko.WorkDone {
		t.Errorf("a change of records is needed, and it is tried again: %v", got)
	}
	checkBoth(t, r)
	if diff := cmp.Diff(shared, files()); diff != "" {
		t.Errorf("something of the two was applied, or removed: -want +got:\n%s", diff)
	}
	writes := r.writes
	if s.Reconcile(t.Context(), "lagos"); r.writes != writes {
		t.Error("looking again wrote again")
	}

	delete(r.deployments, "a")
	s.Reconcile(t.Context(), "lagos")
	want := []string{"lagos/b/10-namespaced/core/ConfigMap.v1_upf.yaml", "lagos/c/00-cluster/Namespace.v1_core.yaml", "lagos/c/10-namespaced/core/ConfigMap.v1_smf.yaml"}
	if diff := cmp.Diff(want, files()); diff != "" {
		t.Errorf("the conflict has ended: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"lagos": "True Scheduled @1", "b": "True Scheduled @1", "c": "True Scheduled @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTwoDeploymentsWithTheSameObjectAreAConflictForPlugins(t *testing.T) {
	t.Parallel()
	r := world([]tko.Site{site("lagos", trigger("e"))}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), object("ConfigMap", "core", "upf", "1")),
		withPackage(deployment("b", "lagos"), object("ConfigMap", "core", "upf", "2")),
	}, plugin("p", edge))
	run := &runner{}
	schedule.New(r, run, schedule.Options{}).Reconcile(t.Context(), "lagos")
	if len(run.runs) > 0 {
		t.Errorf("the plugin ran: %v", run.runs)
	}
	if diff := cmp.Diff(map[string]string{"lagos": "False Conflict @1", "a": "False Conflict @1", "b": "False Conflict @1"}, r.said()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTwoDeploymentsWithTheSameObjectAreAConflictInKubernetes(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t, kube.Options{})
	text, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lagos"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	namespace := "conflict-" + strings.ToLower(filepath.Base(dir))
	cluster := krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": "lagos"}, "namespace": namespace, "inventoryNamespace": namespace},
	}
	c.Kubectl(t, "create", "namespace", namespace)
	r := world([]tko.Site{site("lagos", cluster)}, []tko.Deployment{
		withPackage(deployment("a", "lagos"), object("ConfigMap", namespace, "upf", "1")),
		withPackage(deployment("c", "lagos"), object("ConfigMap", namespace, "smf", "1")),
	})
	s := schedule.New(r, &runner{}, schedule.Options{Kubernetes: clusters(kubernetes.Options{Kubeconfigs: dir, Interval: time.Hour})})
	defer s.Close()
	there := func() []string {
		list := strings.Fields(c.Kubectl(t, "get", "configmaps", "-n", namespace, "-l", kubernetes.LabelDeployment, "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.data.key}{"\n"}{end}`))
		slices.Sort(list)
		return list
	}
	s.Reconcile(t.Context(), "lagos")
	if diff := cmp.Diff([]string{"smf=1", "upf=1"}, there()); diff != "" {
		t.Fatalf("-want +got:\n%s\n%v", diff, r.said())
	}
	// The second one names no namespace: it is the site's.
	r.deployments["b"] = withPackage(deployment("b", "lagos"), object("ConfigMap", "", "upf", "2"), object("ConfigMap", "", "nrf", "2"))
	s.Reconcile(t.Context(), "lagos")
	said := r.said()
	if said["a"] != "False Conflict @1" || said["b"] != "False Conflict @1" || said["lagos"] != "False Conflict @1" || said["c"] != "True Applied @1" {
		t.Errorf("%v", said)
	}
	if diff := cmp.Diff([]string{"smf=1", "upf=1"}, there()); diff != "" {
		t.Errorf("something of the two was applied, or removed: -want +got:\n%s", diff)
	}
	delete(r.deployments, "a")
	s.Reconcile(t.Context(), "lagos")
	if diff := cmp.Diff([]string{"nrf=2", "smf=1", "upf=2"}, there()); diff != "" {
		t.Errorf("the conflict has ended: -want +got:\n%s\n%v", diff, r.said())
	}
}
