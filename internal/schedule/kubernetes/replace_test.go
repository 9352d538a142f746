package kubernetes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// called returns the workload with another name.
func called(name string) krm.Resource {
	r := workload(1)
	r.Set(name, "metadata", "name")
	r.Set(map[string]any{"app": name}, "spec", "selector", "matchLabels")
	r.Set(map[string]any{"app": name}, "spec", "template", "metadata", "labels")
	return r
}

// ready gives a workload the status of one that runs.
func (w *world) ready(name string) {
	w.t.Helper()
	w.patch("Deployment", name, `{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}}`, "status")
}

func replacing(d tko.Deployment, replaced ...tko.DeploymentID) tko.Deployment {
	d.Replaced = replaced
	return d
}

// A workload with another name is there, and healthy, before the old one is removed: of the
// same deployment, and of one that replaces it. Also after the meta-scheduler was started
// again.
func TestReplacedObjectsStayUntilTheNewOnesAreHealthy(t *testing.T) {
	t.Parallel()
	for name, successor := range map[string]tko.Deployment{
		"of the same deployment":        deployment("a", called("new"), configMap("second", "1")),
		"of a deployment that replaces": replacing(deployment("b", called("new"), configMap("second", "1")), "a"),
		"of the one after that":         replacing(deployment("c", called("new"), configMap("second", "1")), "b", "a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kubernetes.Options{})
			w.reconcile(deployment("a", called("old"), configMap("first", "1")))
			w.ready("old")
			r := w.reconcile(successor)
			for range 3 {
				same(t, "what is there", []string{"new", "old"}, w.there("Deployment"))
				same(t, "and of the others", []string{"first", "second"}, w.there("ConfigMap"))
				same(t, "said", map[tko.DeploymentID]string{successor.ID: "False ReplacementWaiting"}, said(r))
				same(t, "nothing is removed", nil, r.Removed)
				if text := r.Deployments[successor.ID].Scheduled.Message; !strings.Contains(text, "2 objects that it replaces stay") || !strings.Contains(text, `/old"`) {
					t.Error(text)
				}
				want := fmt.Sprintf("%s %s Deployment.apps \"NS/old\"", successor.ID, tko.SiteRemove)
				if lines := w.compare(successor); !slices.Contains(lines, want) {
					t.Errorf("the comparison has no removal (%s): %q", want, lines)
				}
				w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir})
				r = w.reconcile(successor)
			}
			w.ready("new")
			r = w.reconcile(successor)
			same(t, "what is there", []string{"new"}, w.there("Deployment"))
			same(t, "and of the others", []string{"second"}, w.there("ConfigMap"))
			same(t, "said", map[tko.DeploymentID]string{successor.ID: "True Applied"}, said(r))
		})
	}
}

// An old workload that stays until the new one is healthy, and that another client deletes
// meanwhile, is there again, as TKO had applied it: also after the meta-scheduler was started
// again. Once it isn't needed, it is not applied again.
func TestReplacedObjectThatAnotherClientDeletesIsThereAgain(t *testing.T) {
	t.Parallel()
	for name, successor := range map[string]tko.Deployment{
		"of the same deployment":        deployment("a", called("new")),
		"of a deployment that replaces": replacing(deployment("b", called("new")), "a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kubernetes.Options{})
			secret := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "first"}, "stringData": map[string]any{"k": "canary"}}
			w.reconcile(deployment("a", called("old"), configMap("first", "1"), secret))
			w.ready("old")
			w.reconcile(successor)
			was := w.must("Deployment", "old")
			if text := w.inventoryText(); !strings.Contains(text, "first") || strings.Contains(text, "canary") || strings.Contains(text, "Y2FuYXJ5") {
				t.Errorf("an inventory has the value of a Secret: %s", text)
			}
			for range 2 {
				w.delete("Deployment", "old")
				w.delete("ConfigMap", "first")
				w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir})
				r := w.reconcile(successor)
				same(t, "what is there", []string{"new", "old"}, w.there("Deployment"))
				same(t, "and of the others", []string{"first"}, w.there("ConfigMap"))
				if text := r.Deployments[successor.ID].Scheduled.Message; !strings.Contains(text, "another client had deleted 2 of them, which were applied again") {
					t.Error(text)
				}
				is := w.must("Deployment", "old")
				for _, path := range [][]string{{"spec"}, {"metadata", "labels"}} {
					before, _ := was.Get(path...)
					after, _ := is.Get(path...)
					same(t, strings.Join(path, "."), before, after)
				}
			}
			w.ready("new")
			w.reconcile(successor)
			same(t, "what is there", []string{"new"}, w.there("Deployment"))
			w.patch("Deployment", "new", `{"status": {"availableReplicas": 0, "readyReplicas": 0}}`, "status")
			w.reconcile(successor)
			same(t, "what is there", []string{"new"}, w.there("Deployment"))
		})
	}
}

// What nothing replaces is removed at once, whatever the state of the rest.
func TestObjectsThatNothingReplacesAreRemovedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", called("sick"), configMap("x", "1")), deployment("b", configMap("y", "1")))
	w.reconcile(deployment("a", called("sick")))
	same(t, "what is there", []string{}, w.there("ConfigMap"))
	same(t, "and the rest", []string{"sick"}, w.there("Deployment"))
}

// The old objects stay in spite of a timeout; the deployment says so, and DeleteFirst lets
// them go.
func TestReplacementIsOverdue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set("1s", "replace", "timeout")
	w.reconcile(deployment("a", called("old")))
	next := deployment("a", called("new"))
	r := w.reconcile(next)
	same(t, "at first", map[tko.DeploymentID]string{"a": "False ReplacementWaiting"}, said(r))
	eventually.True(t, "the replacement to be overdue", func() bool {
		r = w.reconcile(next)
		return said(r)["a"] == "False ReplacementOverdue"
	})
	if text := r.Deployments["a"].Scheduled.Message; !strings.Contains(text, trigger.MetadataReplace+": DeleteFirst") || !strings.Contains(text, `/new"`) {
		t.Error(text)
	}
	same(t, "the site says so, too", "ReplacementOverdue", r.Site.Scheduled.Reason)
	same(t, "what is there", []string{"new", "old"}, w.there("Deployment"))
	next.Metadata = map[string]string{trigger.MetadataReplace: trigger.DeleteFirst}
	w.reconcile(next)
	same(t, "what is there", []string{"new"}, w.there("Deployment"))
}

// The replacement of a replacement that never became healthy, by the first one, changes
// nothing of what runs.
func TestReplacementIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", called("old")))
	w.ready("old")
	uid := w.must("Deployment", "old").Text("metadata", "uid")
	w.reconcile(replacing(deployment("b", called("new")), "a"))
	r := w.reconcile(replacing(deployment("c", called("old")), "b", "a"))
	same(t, "what is there", []string{"old"}, w.there("Deployment"))
	same(t, "the object", uid, w.must("Deployment", "old").Text("metadata", "uid"))
	same(t, "said", map[tko.DeploymentID]string{"c": "True Applied"}, said(r))
}

// The objects of a deployment without a successor, and of a successor that is held, are
// treated as before.
func TestReplacedObjectsNeedASuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.reconcile(deployment("a", called("old")))
	next := replacing(deployment("b", called("new")), "a")
	w.reconcile(next)
	same(t, "what is there", []string{"new", "old"}, w.there("Deployment"))
	w.reconcile()
	same(t, "what is there", []string{}, w.there("Deployment"))
	next.Metadata = map[string]string{trigger.MetadataReplace: "Never"}
	_, err := w.schedule(t.Context(), next)
	if err == nil || !strings.Contains(err.Error(), trigger.MetadataReplace) || !strings.Contains(err.Error(), `"Never" is neither CreateFirst nor DeleteFirst`) {
		t.Error(err)
	}
}

// With DeleteFirst, the old objects are gone before the new ones exist: in one
// reconciliation, if they can be removed at once; otherwise the new ones wait, and other
// deployments don't.
func TestReplacedObjectsAreDeletedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set(trigger.DeleteFirst, "replace", "order")
	held := configMap("held", "1")
	held.Set([]any{"example.com/wait"}, "metadata", "finalizers")
	w.reconcile(deployment("a", configMap("first", "1")), deployment("b", held))
	w.gate.paths = nil
	r := w.reconcile(deployment("a", configMap("second", "1")), replacing(deployment("c", configMap("third", "1")), "b"), deployment("d", configMap("other", "1")))
	same(t, "what is there", []string{"held", "other", "second"}, w.there("ConfigMap"))
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "c": "False ReplacementWaiting", "d": "True Applied"}, said(r))
	if r.Requeue > time.Second {
		t.Errorf("the next reconciliation is after %s", r.Requeue)
	}
	del := slices.Index(w.gate.paths, "DELETE /api/v1/namespaces/"+w.ns+"/configmaps/first")
	create := slices.Index(w.gate.paths, "PATCH /api/v1/namespaces/"+w.ns+"/configmaps/second")
	if del < 0 || create < del {
		t.Errorf("the old object is deleted by request %d, and the new one created by request %d", del, create)
	}
	w.patch("ConfigMap", "held", `{"metadata": {"finalizers": null}}`)
	r = w.reconcile(deployment("a", configMap("second", "1")), replacing(deployment("c", configMap("third", "1")), "b"), deployment("d", configMap("other", "1")))
	same(t, "what is there", []string{"other", "second", "third"}, w.there("ConfigMap"))
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied", "c": "True Applied", "d": "True Applied"}, said(r))
}

// Removals before creations need an approval as others do.
func TestDeleteFirstIsWithinTheBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	w.set(trigger.DeleteFirst, "replace", "order")
	several := func(name string) (all krm.Package) {
		for i := range 30 {
			all = append(all, configMap(fmt.Sprintf("%s%02d", name, i), "1"))
		}
		return all
	}
	w.reconcile(deployment("a", several("old")...))
	r := w.reconcile(deployment("a", several("new")...))
	same(t, "nothing has changed", 30, len(w.there("ConfigMap")))
	same(t, "said", map[tko.DeploymentID]string{"a": "False ReplacementWaiting"}, said(r))
	same(t, "the site", "WaitsForApproval", r.Removals.Reason)
	_, digest, _ := strings.Cut(r.Removals.Message, `spec.prune.approve: "`)
	digest, _, _ = strings.Cut(digest, `"`)
	w.set(digest, "prune", "approve")
	r = w.reconcile(deployment("a", several("new")...))
	same(t, "what is there", 30, len(w.there("ConfigMap")))
	same(t, "the new ones", "new00", w.there("ConfigMap")[0])
	same(t, "said", map[tko.DeploymentID]string{"a": "True Applied"}, said(r))
}

// At a cluster whose controllers run, the pods of the old workload are gone before the new
// workload exists.
func TestPodsAreGoneBeforeTheNewWorkloadExists(t *testing.T) {
	t.Parallel()
	w := newWorldAt(t, kubetest.Config(kube.Shared(t, kube.Options{Controllers: true})), kubernetes.Options{})
	w.set(trigger.DeleteFirst, "replace", "order")
	d := deployment("a", called("old"))
	eventually.True(t, "the old workload to be healthy", func() bool {
		return w.reconcile(d).Deployments["a"].Healthy.Status == tko.ConditionTrue
	})
	next := deployment("a", called("new"))
	eventually.True(t, "the new workload", func() bool {
		w.reconcile(next)
		if w.get("Deployment", "new") == nil {
			return false
		}
		if pods := w.pods("old"); len(pods) > 0 {
			t.Fatalf("the new workload exists before pods of the old one are gone: %v", pods)
		}
		return true
	})
}
