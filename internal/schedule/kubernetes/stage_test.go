package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/kube"
	"github.com/tko-orchestrator/tko/internal/kube/kubetest"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// pull is a pull of images at the world's site, in its namespace, by one node.
func (w *world) pull(images ...string) tko.SiteStaging {
	return tko.SiteStaging{Site: w.site.ID, Rollout: "r", Key: "0123456789abcdef0123456789abcdef01234567", Images: images, Namespace: w.ns, Until: time.Now().Add(time.Hour)}
}

const stageJob = "tko-stage-0123456789abcdef01234567"

// stage begins a pull, or looks at it, which must not fail.
func (w *world) stage(p tko.SiteStaging) string {
	w.t.Helper()
	done, err := w.target.Stage(w.t.Context(), w.cluster, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return done.State + ": " + done.Text
}

// pod makes a pod of the pull, at a node, as the controllers of Kubernetes and a kubelet do. The
// states are those of its containers, by image.
func (w *world) pod(name, node string, p tko.SiteStaging, states map[string]string) {
	w.t.Helper()
	var containers, statuses []any
	for i, image := range p.Images {
		containers = append(containers, map[string]any{"name": fmt.Sprint("c", i), "image": image})
		var state any
		if err := json.Unmarshal([]byte(states[image]), &state); err != nil {
			w.t.Fatal(err)
		}
		statuses = append(statuses, map[string]any{"name": fmt.Sprint("c", i), "image": image, "imageID": "", "ready": false, "restartCount": int64(0), "state": state})
	}
	pod := resource("v1", "Pod", name)
	pod.Set(map[string]any{"tko.nephio.org/stage": p.Key}, "metadata", "labels")
	pod["spec"] = map[string]any{"nodeName": node, "containers": containers}
	if w.get("Pod", name) == nil {
		w.create(pod)
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"phase": "Pending", "containerStatuses": statuses}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.patch("Pod", name, string(status), "status")
}

const (
	creating   = `{"waiting": {"reason": "ContainerCreating"}}`
	backingOff = `{"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}`
	wrongName  = `{"waiting": {"reason": "InvalidImageName", "message": "no reference"}}`
	// configError is the state of a container whose image was pulled and that needs what doesn't
	// exist.
	configError = `{"waiting": {"reason": "CreateContainerConfigError", "message": "configmap not found"}}`
)

func expect(t *testing.T, what, want, got string) {
	t.Helper()
	if !strings.HasPrefix(got, want) {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// The Job of a pull starts nothing of the images, obeys the strictest security standard, and ends
// by itself. It is made once, and removed when all images are there.
func TestImagesArePulledByAJobThatStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	p := w.pull("smf:2", "upf@sha256:1234")
	p.PullSecrets = []string{"registry"}
	expect(t, "at first", "Pulling: asked for", w.stage(p))
	expect(t, "again", "Pulling: 0 of 1 nodes", w.stage(p))
	job := w.must("Job", stageJob)
	pod, _, _ := unstructured.NestedMap(job, "spec", "template", "spec")
	containers, _ := pod["containers"].([]any)
	if len(containers) != 2 {
		t.Fatalf("%d containers", len(containers))
	}
	for i, image := range p.Images {
		c := krm.Resource(containers[i].(map[string]any))
		env, _ := c["env"].([]any)
		if c["image"] != image || c["imagePullPolicy"] != "IfNotPresent" || len(env) != 1 || !strings.Contains(fmt.Sprint(env), "configMapKeyRef") || strings.Contains(fmt.Sprint(env), "optional") {
			t.Errorf("container %d: %v", i, c)
		}
	}
	if on, _ := pod["automountServiceAccountToken"].(bool); on || pod["restartPolicy"] != "Never" || !strings.Contains(fmt.Sprint(pod["imagePullSecrets"]), "registry") {
		t.Errorf("the pod is %v", pod)
	}
	deadline, _, _ := unstructured.NestedInt64(job, "spec", "activeDeadlineSeconds")
	ttl, _, _ := unstructured.NestedInt64(job, "spec", "ttlSecondsAfterFinished")
	if deadline < 3500 || deadline > 3600 || ttl != 600 {
		t.Errorf("the deadline is %d s, and it is removed after %d s", deadline, ttl)
	}
	// The namespace may have the strictest standard.
	w.must("Job", stageJob)
	if _, err := w.client.Resource(kinds["Namespace"]).Patch(t.Context(), w.ns, types.MergePatchType, []byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	strict := resource("v1", "Pod", "strict")
	strict["spec"] = map[string]any(krm.Resource(pod).Clone())
	w.create(strict)
	if _, err := w.client.Resource(kinds["Namespace"]).Patch(t.Context(), w.ns, types.MergePatchType, []byte(`{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	w.pod("one", "n1", p, map[string]string{"smf:2": creating, "upf@sha256:1234": creating})
	expect(t, "while it is created", "Pulling: 0 of 1 nodes", w.stage(p))
	w.pod("one", "n1", p, map[string]string{"smf:2": configError, "upf@sha256:1234": backingOff})
	expect(t, "while one fails", "Pulling: 0 of 1 nodes have the 2 images; image upf@sha256:1234: ImagePullBackOff: not found", w.stage(p))
	w.pod("one", "n1", p, map[string]string{"smf:2": configError, "upf@sha256:1234": configError})
	expect(t, "when they are there", "Pulled: 1 of 1 nodes have the 2 images", w.stage(p))
	if w.get("Job", stageJob) != nil {
		t.Error("the Job is still there")
	}
}

// Only the end of a pull that isn't reached, or a mistake that time doesn't mend, is a failure.
func TestPullsThatFailSayWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	p := w.pull("not a name")
	w.stage(p)
	w.pod("one", "n1", p, map[string]string{"not a name": wrongName})
	expect(t, "a wrong name", "Failed: image not a name: InvalidImageName: no reference: correct the image", w.stage(p))

	p = w.pull("smf:2")
	w.delete("Pod", "one")
	w.stage(p)
	w.pod("two", "n1", p, map[string]string{"smf:2": backingOff})
	p.Until = time.Now()
	expect(t, "too late", "Failed: the time to pull is over: 0 of 1 nodes have the 1 images; image smf:2: ImagePullBackOff: not found", w.stage(p))
	if w.get("Job", stageJob) != nil {
		t.Error("the Job is still there")
	}
	expect(t, "too late to begin", "Failed: the time to pull was over", w.stage(p))

	p = w.pull("smf:2")
	p.Namespace = "missing"
	expect(t, "a missing namespace", `Failed: the cluster has no namespace "missing": create it`, w.stage(p))
	p = w.pull("smf:2")
	w.set("away.yaml", "kubeconfig", "file")
	w.kubeconfig("away.yaml", w.gate.URL, "")
	w.gate.down.Store(true)
	expect(t, "an unreachable cluster", "Pulling: unreachable", w.stage(p))
}

// In the default namespace, that of the inventories, which is made if nothing was applied yet.
func TestPullsMakeTheNamespaceOfInventories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	p := w.pull("smf:2")
	p.Namespace = ""
	expect(t, "at first", "Pulling: asked for", w.stage(p))
	if _, err := w.client.Resource(kinds["Job"]).Namespace(w.ns+"-tko").Get(t.Context(), stageJob, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A closed fence lets no Job begin, and none be removed.
func TestPullsAskTheFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	stopped := fence.With(t.Context(), func(context.Context) error { return fence.NewError(tko.Errorf(tko.ErrStopped, "stopped")) })
	p := w.pull("smf:2")
	if _, err := w.target.Stage(stopped, w.cluster, p); !errors.Is(err, tko.ErrStopped) || w.get("Job", stageJob) != nil {
		t.Errorf("%v, and the Job is %v", err, w.get("Job", stageJob))
	}
	w.stage(p)
	w.pod("one", "n1", p, map[string]string{"smf:2": configError})
	if _, err := w.target.Stage(stopped, w.cluster, p); !errors.Is(err, tko.ErrStopped) || w.get("Job", stageJob) == nil {
		t.Errorf("%v, and the Job is removed", err)
	}
}

// Each node that is ready pulls, also one with taints of its own; and each must have all images.
func TestEveryNodePulls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	nodes := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	for name, spec := range map[string]string{
		"a": `{"spec": {"taints": [{"key": "nf", "value": "upf", "effect": "NoSchedule"}]}}`, "b": `{}`,
		"cordoned": `{"spec": {"unschedulable": true}}`, "down": `{}`,
	} {
		name = w.ns + "-" + name
		node := resource("v1", "Node", name)
		if err := json.Unmarshal([]byte(spec), &node); err != nil {
			t.Fatal(err)
		}
		if _, err := nodes.Create(t.Context(), &unstructured.Unstructured{Object: node}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
		ready := "True"
		if strings.HasSuffix(name, "down") {
			ready = "False"
		}
		// The API server adds the taint not-ready, which the node controller would remove.
		patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": %q, "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}}`, ready)
		if _, err := nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	p := w.pull("smf:2")
	p.EveryNode = true
	expect(t, "at first", "Pulling: asked for", w.stage(p))
	job := w.must("Job", stageJob)
	n, _, _ := unstructured.NestedInt64(job, "spec", "completions")
	at, _, _ := unstructured.NestedInt64(job, "spec", "parallelism")
	pod, _, _ := unstructured.NestedMap(job, "spec", "template", "spec")
	if text := fmt.Sprint(pod["tolerations"]); n != 2 || at != 2 || !strings.Contains(text, "nf") || strings.Contains(text, "node.kubernetes.io") || !strings.Contains(fmt.Sprint(pod["affinity"]), "kubernetes.io/hostname") {
		t.Errorf("%d pods, %d at once, %v, %v", n, at, pod["tolerations"], pod["affinity"])
	}
	w.pod("one", w.ns+"-a", p, map[string]string{"smf:2": configError})
	expect(t, "one of two", "Pulling: 1 of 2 nodes", w.stage(p))
	w.pod("twice", w.ns+"-a", p, map[string]string{"smf:2": configError})
	expect(t, "one of two, twice", "Pulling: 1 of 2 nodes", w.stage(p))
	w.pod("two", w.ns+"-b", p, map[string]string{"smf:2": configError})
	expect(t, "both", "Pulled: 2 of 2 nodes", w.stage(p))
}

// A pull that isn't wanted any more is removed, also if the process that began it was killed; and
// one that never began isn't begun.
func TestPullsThatAreOverAreRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubernetes.Options{})
	p := w.pull("smf:2")
	over := p
	over.Over = true
	expect(t, "one that never began", "Ended: ", w.stage(over))
	if w.get("Job", stageJob) != nil {
		t.Error("it was begun")
	}
	expect(t, "at first", "Pulling: asked for", w.stage(p))
	w.must("Job", stageJob)
	w.target.Close()
	w.target = kubernetes.New(kubernetes.Options{Kubeconfigs: w.dir})
	expect(t, "when it is over", "Ended: ", w.stage(over))
	if w.get("Job", stageJob) != nil {
		t.Error("the Job is still there")
	}
	expect(t, "again", "Ended: ", w.stage(over))
}

// With the controllers of Kubernetes: pods come from the Job, and the cluster itself ends one whose
// deadline is over.
func TestPullsAtAClusterWithControllers(t *testing.T) {
	t.Parallel()
	w := newWorldAt(t, kubetest.Config(kube.Shared(t, kube.Options{Controllers: true})), kubernetes.Options{})
	p := w.pull("smf:2", "upf:2")
	p.EveryNode = true
	eventually.True(t, "the pull", func() bool { return strings.HasPrefix(w.stage(p), "Pulled: 1 of 1 nodes") })

	p = w.pull("smf:never-ready")
	p.EveryNode, p.Key = true, strings.Repeat("f", 40)
	eventually.True(t, "the problem", func() bool { return strings.Contains(w.stage(p), "ImagePullBackOff") })
	job := "tko-stage-" + strings.Repeat("f", 24)
	w.patch("Job", job, `{"spec": {"activeDeadlineSeconds": 1}}`) // TKO is away meanwhile
	// The Job first has the condition FailureTarget, and Failed when its pods are gone.
	eventually.True(t, "the end of the Job", func() bool { return strings.HasPrefix(w.stage(p), "Failed: the Job has ended (DeadlineExceeded") })
}
