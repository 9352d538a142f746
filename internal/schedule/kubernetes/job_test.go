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

// A Job of a chart may run for longer than an upgrade may take: that is no reason
// to roll the upgrade back. What is ordered after the chart waits all the same.
func TestRunningJobOfChartIsNotRolledBack(t *testing.T) {
	t.Parallel()
	w := newHelmWorld(t, kubernetes.Options{})
	w.chart("1.0.0", map[string]string{"templates/a.yaml": `{apiVersion: batch/v1, kind: Job, metadata: {name: "j-{{ .Values.mode }}"},
  spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`})
	after := annotated(configMap("after", "1"), kubernetes.AnnotationOrder, "1")
	one, two := deployment("a", release("web", map[string]any{"mode": "one"})), deployment("a", release("web", map[string]any{"mode": "two"}), after)
	w.look(one)
	w.patch("Job", "j-one", jobRuns, "status")
	w.patch("Job", "j-one", jobDone, "status")
	same(t, "health", "Healthy", w.look(one).Deployments["a"].Healthy.Reason)

	w.look(two)
	w.patch("Job", "j-two", jobRuns, "status")
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir, Charts: w.charts, ChartTimeout: time.Nanosecond})
	r := w.look(two)
	same(t, "revisions", []string{"1 superseded", "2 deployed"}, w.revisions())
	same(t, "health", "InProgress", r.Deployments["a"].Healthy.Reason)
	same(t, "said", "False Waiting", said(r)["a"])
	w.patch("Job", "j-two", jobDone, "status")
	same(t, "said", "True Applied", said(w.look(two))["a"])
	w.must("ConfigMap", "after")
}

// A Job that has completed, and that Kubernetes has removed for that, as its
// package says, is not run again; nor does what is ordered after it wait.
func TestJobThatExpiredIsNotRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	expiring := func(image string) []string {
		j := with(job(image), int64(60), "spec", "ttlSecondsAfterFinished")
		r := w.look(deployment("a", j, annotated(configMap("after", image), kubernetes.AnnotationOrder, "1")))
		return []string{said(r)["a"], r.Deployments["a"].Healthy.Reason}
	}
	waits, good := []string{"False Waiting", "InProgress"}, []string{"True Applied", "Healthy"}
	for _, image := range []string{"i:1", "i:2"} { // another one is another Job
		same(t, "at first", waits, expiring(image))
		w.patch("Job", "j", jobRuns, "status")
		same(t, "while it runs", waits, expiring(image))
		w.patch("Job", "j", jobDone, "status")
		same(t, "when it is done", good, expiring(image))
		w.remove("Job", "j", metav1.DeletePropagationForeground)
		same(t, "when it goes", good, expiring(image))
		w.patch("Job", "j", `{"metadata": {"finalizers": null}}`) // no controller does so here
		for range 2 {
			same(t, "when it is gone", good, expiring(image))
			if w.get("Job", "j") != nil {
				t.Fatal("it runs again")
			}
		}
	}
	w.look()
	same(t, "inventory", []string{}, w.inventory())

	// A Job without the field that is removed is drift.
	j := deployment("a", job("i"))
	w.look(j)
	w.patch("Job", "j", jobRuns, "status")
	w.patch("Job", "j", jobDone, "status")
	w.look(j)
	w.remove("Job", "j", metav1.DeletePropagationBackground)
	w.look(j)
	w.must("Job", "j")
}

func (w *world) remove(kind, name string, how metav1.DeletionPropagation) {
	w.t.Helper()
	if err := w.at(kind).Delete(w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		w.t.Fatal(err)
	}
}
