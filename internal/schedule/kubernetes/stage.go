package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// LabelStage is the label of the Job of a pull, and of its pods. Its value is the key of the pull.
const LabelStage = "tko.nephio.org/stage"

const (
	// annotationRollout and annotationSite say what a pull is for.
	annotationRollout = "tko.nephio.org/rollout"
	annotationSite    = "tko.nephio.org/site"

	// maxStageNodes limits the nodes of a site that pull at once.
	maxStageNodes = 200
	// stageTTL is the time after which the cluster removes the Job of a pull that has ended, if
	// TKO didn't.
	stageTTL = 10 * time.Minute
	// stageRetries is the number of pods that may be lost, such as with a node that is drained.
	stageRetries = 6
	// fewPulls limits the problems that a text has.
	fewPulls = 3
	// neverThere names what no cluster has. The containers of a pull need it to be created, so the
	// kubelet pulls their images, and creates and starts none of them.
	neverThere = "tko-pulls-images-and-starts-nothing"
)

var (
	jobs      = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	podsOfAll = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// A refusal is why a pull has failed; a later one may succeed.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// Stage begins the pull of images at the nodes of a cluster, or looks how far it is, and returns it
// with its state. A pull is a Job with a deadline, whose name is made of the key of the pull. One
// that has ended is removed, and so is one that isn't wanted any more. The error is one of the
// context or of a fence.
func (t *Target) Stage(ctx context.Context, of krm.Resource, p tko.SiteStaging) (tko.SiteStaging, error) {
	text, pulled, err := t.stage(ctx, of, p)
	_, refused := errors.AsType[refusal](err)
	switch {
	case ctx.Err() != nil:
		return p, context.Cause(ctx)
	case fence.Is(err):
		return p, err
	case refused, errors.Is(err, tko.ErrInvalid):
		p.State, p.Text = tko.StagingFailed, bounded(err.Error())
	case err != nil:
		p.State, p.Text = tko.StagingPulling, bounded(describeUnreachable(err).Error())
	case p.Over:
		p.State, p.Text = tko.StagingEnded, ""
	case pulled:
		p.State, p.Text = tko.StagingPulled, text
	default:
		p.State, p.Text = tko.StagingPulling, bounded(text)
	}
	return p, nil
}

func (t *Target) stage(ctx context.Context, of krm.Resource, p tko.SiteStaging) (text string, pulled bool, err error) {
	s, err := trigger.Read(of)
	if err != nil {
		return "", false, err
	}
	rc, release, err := t.connect(ctx, p.Site, s)
	if err != nil {
		return "", false, err
	}
	defer release()
	j := pull{SiteStaging: p, own: rc.own, conn: rc.conn, namespace: cmp.Or(p.Namespace, s.Inventory), name: "tko-stage-" + p.Key[:min(len(p.Key), 24)]}
	job, err := j.find(ctx)
	if err != nil {
		return "", false, err
	}
	if p.Over {
		if job == nil {
			return "", false, nil
		}
		return "", false, j.remove(ctx, job)
	}
	if job == nil {
		if !time.Now().Before(p.Until) {
			return "", false, refuse("the time to pull was over before the cluster began")
		}
		return "asked for", false, j.begin(ctx)
	}
	found, err := j.look(ctx, job)
	if err != nil || !found.ended() {
		return found.text(), false, err
	}
	if err := j.remove(ctx, job); err != nil {
		return "", false, err
	}
	if found.failure != "" {
		return "", false, refuse("%s", found.failure)
	}
	return found.text(), true, nil
}

// A pull is the Job of one, at a cluster.
type pull struct {
	tko.SiteStaging

	own, conn *cluster // own has the rights for inventories, conn those for objects
	namespace string
	name      string
}

// rights explains an error of missing rights.
func (j pull) rights(verb, what string, err error) error {
	if apierrors.IsForbidden(err) {
		return refuse("the credentials of the cluster may not %s %s in namespace %q: grant that, or set spec.stage.namespace to a namespace where they may: %w", verb, what, j.namespace, err)
	}
	return err
}

// find returns the Job; nil if there is none.
func (j pull) find(ctx context.Context) (*unstructured.Unstructured, error) {
	job, err := j.conn.dynamic.Resource(jobs).Namespace(j.namespace).Get(ctx, j.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return job, j.rights("get", "Jobs", err)
}

// remove removes the Job with its pods.
func (j pull) remove(ctx context.Context, job *unstructured.Unstructured) error {
	return j.conn.remove(ctx, key{Group: jobs.Group, Kind: "Job", Namespace: j.namespace, Name: j.name}, jobs.Version, job, metav1.DeletePropagationBackground)
}

// begin makes the Job, unless another call has.
func (j pull) begin(ctx context.Context) error {
	n, tolerations := 1, []any(nil)
	if j.EveryNode {
		var err error
		if n, tolerations, err = j.nodes(ctx); err != nil {
			return err
		}
	}
	job := &unstructured.Unstructured{Object: j.job(n, tolerations, time.Until(j.Until))}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	at := j.conn.dynamic.Resource(jobs).Namespace(j.namespace)
	_, err := at.Create(ctx, job, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) && j.Namespace == "" { // nothing was applied to the cluster yet
		if err = j.own.makeNamespace(ctx, j.namespace); err == nil {
			_, err = at.Create(ctx, job, metav1.CreateOptions{FieldManager: manager})
		}
	}
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsNotFound(err):
		return refuse("the cluster has no namespace %q: create it, or correct spec.stage.namespace", j.namespace)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refuse("the cluster refuses the Job that pulls: %w", err)
	}
	return j.rights("create", "Jobs", err)
}

// nodes returns the number of nodes that can pull, and what tolerates their taints.
func (j pull) nodes(ctx context.Context) (n int, tolerations []any, err error) {
	taints := map[string]any{}
	restart := func() { n = 0; clear(taints) }
	_, err = eachPage(ctx, j.conn.dynamic.Resource(nodes).List, metav1.ListOptions{}, restart, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			own, ok := pullable(page.Items[i].Object)
			if !ok {
				continue
			}
			n++
			for _, taint := range own {
				text := func(field string) string { s, _ := taint[field].(string); return s }
				taints[text("key")+" "+text("value")+" "+text("effect")] = map[string]any{"key": text("key"), "operator": "Equal", "value": text("value"), "effect": text("effect")}
			}
		}
	})
	switch {
	case apierrors.IsForbidden(err):
		return 0, nil, refuse("the credentials of the cluster may not list nodes, so not every node can pull: grant that, or set spec.stage.nodes to Any: %w", err)
	case err != nil:
		return 0, nil, fmt.Errorf("list the nodes: %w", err)
	case n == 0:
		return 0, nil, errors.New("the cluster has no node that is ready and may get pods")
	case n > maxStageNodes:
		return 0, nil, refuse("the cluster has %d nodes, and at most %d pull at once: set spec.stage.nodes to Any, if the nodes share a registry mirror, or create a rollout without spec.stage", n, maxStageNodes)
	}
	for _, name := range slices.Sorted(maps.Keys(taints)) {
		tolerations = append(tolerations, taints[name])
	}
	return n, tolerations, nil
}

// pullable returns the taints of a node that pods of users may get, apart from those that
// Kubernetes sets by itself; ok is false if it can't pull now.
func pullable(node map[string]any) (taints []map[string]any, ok bool) {
	if off, _, _ := unstructured.NestedBool(node, "spec", "unschedulable"); off {
		return nil, false
	}
	if os, found, _ := unstructured.NestedString(node, "metadata", "labels", "kubernetes.io/os"); found && os != "linux" {
		return nil, false
	}
	conditions, _, _ := unstructured.NestedSlice(node, "status", "conditions")
	if !slices.ContainsFunc(conditions, func(v any) bool {
		c, _ := v.(map[string]any)
		return c["type"] == "Ready" && c["status"] == "True"
	}) {
		return nil, false
	}
	all, _, _ := unstructured.NestedSlice(node, "spec", "taints")
	for _, v := range all {
		taint, _ := v.(map[string]any)
		if name, _ := taint["key"].(string); taint["effect"] != "PreferNoSchedule" && !strings.HasPrefix(name, "node.kubernetes.io/") {
			taints = append(taints, taint)
		}
	}
	return taints, true
}

// job returns the Job: a pod on each of n nodes, whose containers have the images, and need a
// ConfigMap that doesn't exist. The kubelet pulls the image of a container before it asks for
// that, so nothing of an image is ever run, also not if it has no shell.
func (j pull) job(n int, tolerations []any, left time.Duration) map[string]any {
	containers := make([]any, len(j.Images))
	for i, image := range j.Images {
		resources := map[string]any{"cpu": "1m", "memory": "8Mi"}
		containers[i] = map[string]any{
			"name": fmt.Sprintf("image-%d", i), "image": image, "imagePullPolicy": "IfNotPresent", "command": []any{"/" + neverThere},
			"env": []any{map[string]any{
				"name": "TKO_STAGE", "valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": neverThere, "key": neverThere}},
			}},
			"resources": map[string]any{"requests": resources, "limits": resources},
			"securityContext": map[string]any{
				"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
			},
		}
	}
	pod := map[string]any{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": int64(0), "containers": containers,
		"securityContext": map[string]any{"runAsNonRoot": true, "runAsUser": int64(65534), "seccompProfile": map[string]any{"type": "RuntimeDefault"}},
	}
	if len(j.PullSecrets) > 0 {
		names := make([]any, len(j.PullSecrets))
		for i, name := range j.PullSecrets {
			names[i] = map[string]any{"name": name}
		}
		pod["imagePullSecrets"] = names
	}
	if len(tolerations) > 0 {
		pod["tolerations"] = tolerations
	}
	if j.EveryNode {
		pod["affinity"] = map[string]any{"podAntiAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"topologyKey": "kubernetes.io/hostname", "labelSelector": map[string]any{"matchLabels": map[string]any{LabelStage: j.Key}},
		}}}}
	}
	labels := map[string]any{LabelStage: j.Key, "app.kubernetes.io/managed-by": manager}
	about := map[string]any{annotationRollout: string(j.Rollout), annotationSite: string(j.Site)}
	return map[string]any{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{"name": j.name, "namespace": j.namespace, "labels": labels, "annotations": about},
		"spec": map[string]any{
			"completions": int64(n), "parallelism": int64(n), "backoffLimit": int64(stageRetries), "activeDeadlineSeconds": max(int64(left/time.Second), 1),
			"ttlSecondsAfterFinished": int64(stageTTL / time.Second),
			"template":                map[string]any{"metadata": map[string]any{"labels": labels, "annotations": about}, "spec": pod},
		},
	}
}

// A pulling is how far a pull is.
type pulling struct {
	images, nodes, done int
	failure             string   // why it has failed
	problems            []string // that may pass
}

func (p pulling) ended() bool { return p.failure != "" || p.done >= p.nodes }

// text describes a pull without a failure.
func (p pulling) text() string {
	text := fmt.Sprintf("%d of %d nodes have the %d images", min(p.done, p.nodes), p.nodes, p.images)
	if len(p.problems) > 0 {
		text += "; " + firstFew(p.problems, fewPulls)
	}
	return text
}

// look returns how far the pull of a Job is.
func (j pull) look(ctx context.Context, job *unstructured.Unstructured) (pulling, error) {
	wanted, _, _ := unstructured.NestedInt64(job.Object, "spec", "completions")
	out := pulling{images: len(j.Images), nodes: int(max(wanted, 1))}
	pods, err := j.conn.list(ctx, podsOfAll, j.namespace, LabelStage+"="+j.Key)
	if err != nil {
		return out, j.rights("list", "Pods", err)
	}
	problems, have := map[string]bool{}, map[string]bool{}
	for _, pod := range pods {
		node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
		pulled, problem, final := podPulled(pod.Object, len(j.Images))
		switch {
		case pulled && node != "":
			have[node] = true
		case pod.GetDeletionTimestamp() != nil: // it no longer tries
			continue
		case problem != "":
			problems[problem] = true
		}
		if final {
			out.failure = problem
		}
	}
	out.done = len(have)
	out.problems = slices.Sorted(maps.Keys(problems))
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	for _, v := range conditions {
		c, _ := v.(map[string]any)
		reason, _ := c["reason"].(string)
		message, _ := c["message"].(string)
		switch {
		case c["status"] != "True":
		case c["type"] == "Complete": // the cluster has removed pods of it
			out.done = out.nodes
		case c["type"] == "Failed" && !out.ended():
			out.failure = fmt.Sprintf("the Job has ended (%s: %s): %s", reason, message, out.text())
		}
	}
	if !out.ended() && !time.Now().Before(j.Until) {
		out.failure = "the time to pull is over: " + out.text()
	}
	return out, nil
}

// beforePull are the reasons of waiting containers whose images may not be there yet. Each other
// one, such as CreateContainerConfigError, comes after the pull.
var beforePull = []string{"", "ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}

// podPulled reports whether all images of a pod are at its node; and if not, the problem, which is
// final if no time solves it.
func podPulled(pod map[string]any, images int) (pulled bool, problem string, final bool) {
	statuses, _, _ := unstructured.NestedSlice(pod, "status", "containerStatuses")
	n := 0
	for _, v := range statuses {
		c, _ := v.(map[string]any)
		image, _ := c["image"].(string)
		waiting, isWaiting, _ := unstructured.NestedMap(c, "state", "waiting")
		_, runs, _ := unstructured.NestedMap(c, "state", "running")
		_, ended, _ := unstructured.NestedMap(c, "state", "terminated")
		reason, _ := waiting["reason"].(string)
		message, _ := waiting["message"].(string)
		switch {
		case runs, isWaiting && !slices.Contains(beforePull, reason):
			n++
		case ended && c["imageID"] != "" && c["imageID"] != nil:
			n++
		case isWaiting && (reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"):
		case isWaiting:
			problem = fmt.Sprintf("image %s: %s: %s", image, reason, message)
			if reason == "InvalidImageName" {
				return false, problem + ": correct the image in the package", true
			}
		}
	}
	if n >= images {
		return true, "", false
	}
	conditions, _, _ := unstructured.NestedSlice(pod, "status", "conditions")
	for _, v := range conditions {
		c, _ := v.(map[string]any)
		if message, _ := c["message"].(string); problem == "" && c["type"] == "PodScheduled" && c["status"] == "False" {
			problem = "a pod isn't scheduled: " + message
		}
	}
	return false, problem, false
}
