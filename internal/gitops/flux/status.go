package flux

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
)

// maxInventory is how much of an inventory an object tells: objects are small.
const maxInventory = 1000

// statusOf is how a source is, as its object says it.
func statusOf(o *unstructured.Unstructured, s tko.Source) map[string]any {
	status := map[string]any{"inventory": nil, "lastAttemptedRevision": s.Status.Attempted, "lastAppliedRevision": s.Status.Applied}
	observed := observedOf(o, s)
	if observed.generation > 0 {
		status["observedGeneration"] = observed.generation
	}
	if observed.requested != "" {
		status["lastHandledReconcileAt"] = observed.requested
	}
	conditions := []any{}
	for _, c := range s.Status.Conditions {
		conditions = append(conditions, map[string]any{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "observedGeneration": observed.generation,
			"lastTransitionTime": c.LastTransition.UTC().Format(time.RFC3339),
		})
	}
	status["conditions"] = conditions
	entries := []any{}
	for _, item := range s.Status.Items[:min(maxInventory, len(s.Status.Items))] {
		entry := map[string]any{"kind": item.Kind, "name": item.Name}
		if item.ID != "" {
			entry["id"] = item.ID
		}
		if item.Status != "" {
			entry["status"] = item.Status
		}
		entries = append(entries, entry)
	}
	status["inventory"] = map[string]any{"entries": entries, "count": len(s.Status.Items)}
	return status
}

type observed struct {
	generation int64
	requested  string
}

// observedOf is what of an object was seen by the last look at its source.
func observedOf(o *unstructured.Unstructured, s tko.Source) observed {
	parts := strings.SplitN(gitops.SeenGeneration(s), "/", 3)
	if len(parts) < 3 || parts[0] != string(o.GetUID()) {
		return observed{}
	}
	generation, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return observed{}
	}
	requested, _, _ := cutLast(parts[2], "/")
	return observed{generation: generation, requested: requested}
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// event tells people, in the cluster and through notification-controller, how a
// source has come to be.
func (w *Watcher) event(ctx context.Context, o *unstructured.Unstructured, s tko.Source) {
	var ready tko.Condition
	for _, c := range s.Status.Conditions {
		if c.Type == tko.ConditionReady {
			ready = c
		}
	}
	if ready.Status != tko.ConditionTrue && ready.Status != tko.ConditionFalse {
		return
	}
	key := "event " + nameOf(o)
	said := ready.Status + ready.Reason + ready.Message + s.Status.Attempted
	if w.told[key] == said {
		return
	}
	w.told[key] = said
	kind, severity := "Normal", "info"
	if ready.Status == tko.ConditionFalse {
		kind, severity = "Warning", "error"
	}
	now := time.Now().UTC()
	involved := map[string]any{
		"apiVersion": Group + "/" + Version, "kind": "GitOps", "namespace": o.GetNamespace(), "name": o.GetName(), "uid": string(o.GetUID()),
	}
	message := ready.Message
	if len(message) > 1000 {
		message = message[:1000]
	}
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"generateName": o.GetName() + ".", "namespace": o.GetNamespace()},
		"involvedObject": involved, "type": kind, "reason": ready.Reason, "message": strings.ToValidUTF8(message, "\uFFFD"), "count": int64(1),
		"firstTimestamp": now.Format(time.RFC3339), "lastTimestamp": now.Format(time.RFC3339),
		"source": map[string]any{"component": "tko-gitops"}, "reportingComponent": "tko-gitops", "reportingInstance": s.Status.Holder,
	}}
	if _, err := w.client.Resource(eventResource).Namespace(o.GetNamespace()).Create(ctx, event, metav1.CreateOptions{}); err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "an event can't be written", "source", s.Name, "err", err)
	}
	if w.options.Events == "" {
		return
	}
	w.notify(ctx, map[string]any{
		"involvedObject": involved, "severity": severity, "timestamp": now.Format(time.RFC3339), "message": ready.Message, "reason": ready.Reason,
		"metadata":            map[string]string{Group + "/revision": s.Status.Attempted, Group + "/commit_status": "update"},
		"reportingController": "tko-gitops",
	})
}

// notify tells notification-controller.
func (w *Watcher) notify(ctx context.Context, event map[string]any) {
	body, err := json.Marshal(event)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.options.Events, bytes.NewReader(body))
	if err == nil {
		request.Header.Set("Content-Type", "application/json")
		var answer *http.Response
		if answer, err = w.http.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode < 300 {
				return
			}
			w.log.WarnContext(ctx, "notification-controller refused an event", "status", answer.Status)
			return
		}
	}
	w.log.WarnContext(ctx, "notification-controller can't be reached", "err", err)
}
