package schedule_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
)

// health returns the status and reason of Healthy of the site and its deployment.
func (l *removalWorld) health() [2]string {
	l.t.Helper()
	of := func(all []tko.Condition) string {
		i := slices.IndexFunc(all, func(c tko.Condition) bool { return c.Type == tko.ConditionHealthy })
		if i < 0 {
			return ""
		}
		return all[i].Status + " " + all[i].Reason
	}
	return [2]string{of(l.records.sites[tko.SiteID(l.name)].Stamp.Conditions), of(l.records.deployments["a"].Stamp.Conditions)}
}

// Without a target that observes the applied objects, Healthy is unknown: they may be
// gone.
func TestHealthIsUnknownAfterTheClusterIsRemoved(t *testing.T) {
	t.Parallel()
	healthy, unknown := [2]string{"True Healthy", "True Healthy"}, [2]string{"Unknown NotObserved", "Unknown NotObserved"}
	for cleanup, holds := range map[string]int{"Leave": 2, "Remove": 0} {
		t.Run("unobserved after "+cleanup, func(t *testing.T) {
			t.Parallel()
			l := newLeaving(t, 2, map[string]any{"cleanup": cleanup})
			if got := l.health(); got != healthy {
				t.Fatalf("at first: %v", got)
			}
			l.becomes()
			l.reconcile()
			l.holds(holds)
			if got := l.health(); got != unknown {
				t.Errorf("without the cluster: %v", got)
			}
			l.again()
			l.becomes(l.cluster("lagos", nil))
			l.reconcile()
			l.holds(2)
			if got := l.health(); got != healthy {
				t.Errorf("with the cluster again: %v", got)
			}
		})
	}
}

// CleanedUp reports on triggers that were removed from the site's package. A cluster
// that is in the package again doesn't make it False.
func TestCleanedUpIsTrueWhenTheClusterIsAddedAgain(t *testing.T) {
	t.Parallel()
	back := func(l *removalWorld) {
		l.t.Helper()
		l.reconcile()
		l.says("True Applied", "has the removed resource again")
		l.again()
	}
	t.Run("back after leave", func(t *testing.T) {
		t.Parallel()
		l := newLeaving(t, 2, nil)
		l.becomes()
		l.reconcile()
		l.says("False Left", "")
		l.becomes() // something else changes
		l.reconcile()
		l.says("False Left", "")
		l.again()
		l.becomes(l.cluster("lagos", nil))
		back(l)
	})
	t.Run("back before removal", func(t *testing.T) {
		t.Parallel()
		l := newLeaving(t, 2, map[string]any{"cleanup": "Remove"})
		if err := os.Remove(filepath.Join(l.dir, "lagos")); err != nil {
			t.Fatal(err)
		}
		l.becomes()
		l.reconcile()
		l.says("False Removing", "")
		l.give("lagos")
		l.becomes(l.cluster("lagos", nil))
		back(l)
		l.holds(2)
	})
	t.Run("one of two is back", func(t *testing.T) {
		t.Parallel()
		l := newLeaving(t, 2, nil)
		l.give("eko")
		other := l.cluster("eko", nil)
		other.Set("d", "metadata", "name")
		other.Set(l.name+"-eko", "spec", "inventoryNamespace")
		other.Set("kube-public", "spec", "namespace")
		l.becomes(l.cluster("lagos", nil), other)
		l.reconcile()
		l.becomes(other)
		l.reconcile()
		l.says("False Left", `"lagos"`)
		l.becomes()
		l.reconcile()
		l.says("False Left", "")
		l.becomes(other)
		l.reconcile()
		l.says("False Left", `"lagos"`)
		l.becomes(other, l.cluster("lagos", nil))
		back(l)
	})
	t.Run("as an earlier version wrote it", func(t *testing.T) {
		t.Parallel()
		l := newLeaving(t, 2, nil)
		l.becomes()
		l.reconcile()
		s := l.records.sites[tko.SiteID(l.name)]
		for i := range s.Stamp.Conditions {
			s.Stamp.Conditions[i].ObservedRevision = s.Stamp.Revision
		}
		l.becomes()
		l.reconcile()
		l.says("False Left", "")
		l.becomes(l.cluster("lagos", nil))
		back(l)
	})
	t.Run("back after its revisions went", func(t *testing.T) {
		t.Parallel()
		l := newLeaving(t, 2, nil)
		l.becomes()
		l.reconcile()
		clear(l.records.past)
		l.becomes()
		l.reconcile()
		l.says("False Left", "")
		clear(l.records.past)
		l.becomes(l.cluster("lagos", nil))
		back(l)
	})
}

func TestObjectsOrderedAfterAJobWaitForIt(t *testing.T) {
	t.Parallel()
	l := newLeaving(t, 0, nil)
	d := l.records.deployments["a"]
	job := krm.Resource{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "migrate"}}
	job["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
		"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i"}},
	}}}
	after := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": l.name + "-after"}}
	after.SetAnnotation(kubernetes.AnnotationOrder, "1")
	d.Package = append(d.Package, job, after)
	l.records.deployments["a"] = d
	status := func(patch string) {
		t.Helper()
		l.kube.Kubectl(t, "patch", "job", "migrate", "-n", l.name, "--subresource=status", "--type=merge", "-p", `{"status": `+patch+`}`)
	}
	l.reconcile()
	for _, patch := range []string{
		`{}`,
		`{"startTime": "2026-01-01T00:00:00Z", "active": 1, "ready": 1}`,
		`{"startTime": "2026-01-01T00:00:00Z", "active": 1, "failed": 1}`,
	} {
		status(patch)
		l.reconcile()
		l.holds(0)
		if got := l.health(); got[1] != "False InProgress" {
			t.Errorf("a Job with the status %s: %v", patch, got)
		}
	}
	status(`{"active": 0, "ready": 0, "succeeded": 1, "completionTime": "2026-01-01T00:00:01Z", "conditions": [
  {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}, {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
  "uncountedTerminatedPods": {}}`)
	l.reconcile()
	l.holds(1)
	if got := l.health(); got[1] != "True Healthy" {
		t.Errorf("a Job that is done: %v", got)
	}
	if text := strings.Join(l.messages(), "\n"); strings.Contains(text, "has not completed") {
		t.Error(text)
	}
}

func (l *removalWorld) messages() []string {
	var all []string
	for _, c := range l.records.deployments["a"].Stamp.Conditions {
		all = append(all, c.Message)
	}
	return all
}
