package kubernetes_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

const (
	jobRuns = `{"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1, "ready": 1}}`
	jobDone = `{"status": {"active": 0, "ready": 0, "succeeded": 1, "uncountedTerminatedPods": {}, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z", "conditions": [
  {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}, {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]}}`
)

// A Job of a chart may run longer than the time limit of an upgrade, without a
// rollback. Objects that are ordered after the chart wait for it.
func TestRunningJobOfChartIsNotRolledBack(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": `{apiVersion: batch/v1, kind: Job, metadata: {name: "j-{{ .Values.mode }}"},
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`})
	after := annotated(configMap("after", "1"), kubernetes.AnnotationOrder, "1")
	one, two := deployment("a", release("web", map[string]any{"mode": "one"})), deployment("a", release("web", map[string]any{"mode": "two"}), after)
	w.reconcile(one)
	w.patch("Job", "j-one", jobRuns, "status")
	w.patch("Job", "j-one", jobDone, "status")
	same(t, "health", "Healthy", w.reconcile(one).Deployments["a"].Healthy.Reason)

	w.reconcile(two)
	w.patch("Job", "j-two", jobRuns, "status")
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts, ChartTimeout: time.Nanosecond})
	r := w.reconcile(two)
	same(t, "revisions", []string{"1 superseded", "2 deployed"}, w.revisions())
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
	same(t, "said", "False Waiting", said(r)["a"])
	w.patch("Job", "j-two", jobDone, "status")
	same(t, "said", "True Applied", said(w.reconcile(two))["a"])
	w.must("ConfigMap", "after")
}

// A completed Job that Kubernetes removed after its TTL is not run again, and later
// objects don't wait for it.
func TestJobThatExpiredIsNotRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	expiring := func(image string) []string {
		j := with(job(image), int64(60), "spec", "ttlSecondsAfterFinished")
		r := w.reconcile(deployment("a", j, annotated(configMap("after", image), kubernetes.AnnotationOrder, "1")))
		return []string{said(r)["a"], r.Deployments["a"].Healthy.Reason}
	}
	waits, good := []string{"False Waiting", "InProgress"}, []string{"True Applied", "Healthy"}
	for _, image := range []string{"i:1", "i:2"} { // another image makes another Job
		same(t, "at first", waits, expiring(image))
		w.patch("Job", "j", jobRuns, "status")
		same(t, "while it runs", waits, expiring(image))
		w.patch("Job", "j", jobDone, "status")
		same(t, "when it is done", good, expiring(image))
		w.remove("Job", "j", metav1.DeletePropagationForeground)
		same(t, "when it goes", good, expiring(image))
		w.patch("Job", "j", `{"metadata": {"finalizers": null}}`) // no controller removes them here
		for range 2 {
			same(t, "when it is gone", good, expiring(image))
			if w.get("Job", "j") != nil {
				t.Fatal("the Job runs again")
			}
		}
	}
	w.reconcile()
	same(t, "inventory", []string{}, w.inventory())

	// A missing Job without the TTL is drift.
	j := deployment("a", job("i"))
	w.reconcile(j)
	w.patch("Job", "j", jobRuns, "status")
	w.patch("Job", "j", jobDone, "status")
	w.reconcile(j)
	w.remove("Job", "j", metav1.DeletePropagationBackground)
	w.reconcile(j)
	w.must("Job", "j")
}

func (w *world) remove(kind, name string, how metav1.DeletionPropagation) {
	w.t.Helper()
	if err := w.at(kind).Delete(w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		w.t.Fatal(err)
	}
}
