package schedule_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// A removalWorld is a site whose Cluster resource changes.
type removalWorld struct {
	t         *testing.T
	kube      *kube.Cluster
	dir, name string
	records   *records
	scheduler *schedule.Scheduler
}

func newLeaving(t *testing.T, objects int, spec map[string]any) *removalWorld {
	t.Helper()
	c := kube.Shared(t, kube.Options{})
	l := &removalWorld{t: t, kube: c, dir: t.TempDir(), name: "removal-" + strings.ToLower(filepath.Base(t.Name()))}
	l.name = strings.NewReplacer("_", "-", ",", "").Replace(l.name)
	l.give("lagos")
	c.Kubectl(t, "create", "namespace", l.name)
	d := deployment("a", tko.SiteID(l.name))
	d.Package = nil
	for i := range objects {
		d.Package = append(d.Package, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprintf("%s-%d", l.name, i)}})
	}
	l.records = world([]tko.Site{site(tko.SiteID(l.name), l.cluster("lagos", spec))}, []tko.Deployment{d})
	l.records.past = map[int64]tko.Site{}
	l.scheduler = schedule.New(l.records, &runner{}, schedule.Options{Kubernetes: clusters(kubernetes.Options{Kubeconfigs: l.dir, Interval: time.Hour})})
	t.Cleanup(l.scheduler.Close)
	l.reconcile()
	l.holds(objects)
	return l
}

func (l *removalWorld) give(name string) {
	l.t.Helper()
	text, err := os.ReadFile(l.kube.Kubeconfig)
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, name), text, 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *removalWorld) cluster(file string, spec map[string]any) krm.Resource {
	r := krm.Resource{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"},
		"spec": map[string]any{"kubeconfig": map[string]any{"file": file}, "namespace": l.name, "inventoryNamespace": l.name},
	}
	for name, value := range spec {
		r.Set(value, "spec", name)
	}
	return r
}

// becomes sets the site's package, as its next revision.
func (l *removalWorld) becomes(pkg ...krm.Resource) {
	s := l.records.sites[tko.SiteID(l.name)]
	l.records.past[s.Stamp.Revision] = s
	s.Package = pkg
	s.Stamp.Revision++
	l.records.sites[s.ID] = s
}

func (l *removalWorld) reconcile() {
	l.t.Helper()
	if r := l.scheduler.Reconcile(l.t.Context(), tko.SiteID(l.name)); r.Err != nil {
		l.t.Fatal(r.Err)
	}
}

func (l *removalWorld) holds(objects int) {
	l.t.Helper()
	text := l.kube.Kubectl(l.t, "get", "configmaps", "-n", l.name, "-l", kubernetes.LabelDeployment, "-o", "name")
	if got := strings.Count(text, "/"+l.name+"-"); got != objects {
		l.t.Errorf("the cluster has %d objects, not %d", got, objects)
	}
}

func (l *removalWorld) says(status, text string) {
	l.t.Helper()
	for _, c := range l.records.sites[tko.SiteID(l.name)].Stamp.Conditions {
		if c.Type == tko.ConditionCleanedUp {
			if got := c.Status + " " + c.Reason; got != status || !strings.Contains(c.Message, text) {
				l.t.Errorf("CleanedUp is %s: %s", got, c.Message)
			}
			return
		}
	}
	if status != "" {
		l.t.Error("nothing is said")
	}
}

// again reconciles once more, which must write nothing.
func (l *removalWorld) again() {
	l.t.Helper()
	writes := l.records.writes
	l.reconcile()
	if l.records.writes != writes {
		l.t.Error("looking again wrote again")
	}
}

func TestObjectsOfARemovedClusterAreOrphanedOrRemoved(t *testing.T) {
	t.Parallel()
	remove := map[string]any{"cleanup": "Remove"}
	t.Run("stays by default", func(t *testing.T) {
		l := newLeaving(t, 2, nil)
		l.becomes()
		l.reconcile()
		l.holds(2)
		l.says("False Left", `2 objects of 1 deployments, in kubeconfig file "lagos"`)
		l.again()
		l.becomes(l.cluster("lagos", nil)) // and is found again
		l.reconcile()
		l.holds(2)
	})
	t.Run("is removed", func(t *testing.T) {
		l := newLeaving(t, 2, remove)
		l.becomes()
		l.reconcile()
		l.holds(0)
		l.says("True Removed", "were removed")
		l.again()
	})
	t.Run("is removed later, when the cluster is back", func(t *testing.T) {
		l := newLeaving(t, 2, remove)
		if err := os.Remove(filepath.Join(l.dir, "lagos")); err != nil {
			t.Fatal(err)
		}
		for range 2 { // also after other changes
			l.becomes()
			l.reconcile()
			l.holds(2)
			l.says("False Removing", "are not removed yet")
			l.again()
		}
		l.give("lagos")
		l.reconcile()
		l.holds(0)
		l.says("True Removed", "")
	})
	t.Run("within the budget", func(t *testing.T) {
		l := newLeaving(t, 21, remove)
		l.becomes()
		l.reconcile()
		l.holds(21)
		l.says("False WaitsForApproval", "21 of 21 objects would be removed")
		l.again()
		code := l.records.sites[tko.SiteID(l.name)].Stamp.Conditions
		var digest string
		for _, c := range code {
			if _, after, ok := strings.Cut(c.Message, `spec.prune.approve: "`); ok {
				digest, _, _ = strings.Cut(after, `"`)
			}
		}
		l.becomes(l.cluster("lagos", map[string]any{"cleanup": "Remove", "prune": map[string]any{"approve": digest}}))
		l.becomes()
		l.reconcile()
		l.holds(0)
		l.says("True Removed", "")
	})
	t.Run("stays if the cluster is only called otherwise", func(t *testing.T) {
		l := newLeaving(t, 2, remove)
		l.give("eko")
		l.becomes(l.cluster("eko", remove))
		l.reconcile()
		l.holds(2)
		l.says("True Applied", "is the same cluster as")
		l.again()
	})
	t.Run("stays until it is known whether it is the same cluster", func(t *testing.T) {
		l := newLeaving(t, 2, remove)
		l.becomes(l.cluster("nowhere", remove))
		l.scheduler.Reconcile(t.Context(), tko.SiteID(l.name))
		l.holds(2)
		l.says("False Removing", "may be the same cluster")
	})
}

// The deletion of a site takes several transactions, in which its deployments lose
// the site. None of their objects may be removed from its cluster.
func TestSiteBeingDeletedIsNotReconciled(t *testing.T) {
	t.Parallel()
	l := newLeaving(t, 2, map[string]any{"cleanup": "Remove"})
	s, d := l.records.sites[tko.SiteID(l.name)], l.records.deployments["a"]
	s.Stamp.Conditions = append(s.Stamp.Conditions, tko.Condition{Type: tko.ConditionDeleting, Status: tko.ConditionTrue})
	d.Site = ""
	l.records.sites[s.ID], l.records.deployments["a"] = s, d
	l.reconcile()
	l.holds(2)
	delete(l.records.sites, s.ID)
	l.reconcile()
	l.holds(2)
}
