package flux

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
)

// manager is the field manager of writes.
const manager = "tko-gitops"

// status is the status of a GitOps object.
type status struct {
	ObservedGeneration        int64            `json:"observedGeneration,omitempty"`
	Conditions                []meta.Condition `json:"conditions,omitempty"`
	LastAttemptedRevision     string           `json:"lastAttemptedRevision,omitempty"`
	LastAppliedRevision       string           `json:"lastAppliedRevision,omitempty"`
	LastAppliedOriginRevision string           `json:"lastAppliedOriginRevision,omitempty"`
	LastHandledReconcileAt    string           `json:"lastHandledReconcileAt,omitempty"`
	Asks                      string           `json:"asks,omitempty"`
	Messages                  []string         `json:"messages,omitempty"`
	Inventory                 *inventory       `json:"inventory,omitempty"`
	History                   []snapshot       `json:"history,omitempty"`
}

type inventory struct {
	Count   int     `json:"count"`
	Entries []entry `json:"entries"` // the first ones
}

type entry struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	ID     string `json:"id,omitempty"`
	Status string `json:"status,omitempty"`
}

// A snapshot is a revision that was tried.
type snapshot struct {
	Digest   string            `json:"digest"`
	First    meta.Time         `json:"firstReconciled"`
	Last     meta.Time         `json:"lastReconciled"`
	Status   string            `json:"lastReconciledStatus"`
	Total    int64             `json:"totalReconciliations"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

const (
	maxEntries  = 1000
	maxMessages = 50
	maxText     = 1000
	maxStatus   = 200 // of one entry: all of them have to fit into an object
	maxHistory  = 5
)

// A report is a source with the request that it was reconciled for.
type report struct {
	source     tko.Source
	generation int64
	requested  string
	artifact   Artifact
}

// report returns a function that stores reports about an object and enqueues it.
func (c *Controller) report(r reference, generation int64, requested string, artifact Artifact) func(context.Context, tko.Source) {
	return func(_ context.Context, s tko.Source) {
		s.State = nil // and copy the rest: the caller may change its own
		s.Status.Items, s.Status.Conditions, s.Status.Messages = slices.Clone(s.Status.Items), slices.Clone(s.Status.Conditions), slices.Clone(s.Status.Messages)
		c.mu.Lock()
		c.reports[r] = report{source: s, generation: generation, requested: requested, artifact: artifact}
		c.mu.Unlock()
		c.queue.Add(r)
	}
}

// write writes the last report about an object into its status.
func (c *Controller) write(ctx context.Context, r reference) error {
	c.mu.Lock()
	latest, ok := c.reports[r]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	var err error
	switch {
	case latest.source.Version == 0:
		err = c.end(ctx, r)
	case r.kind == Kind:
		err = c.writeStatus(ctx, r, latest)
	}
	if err != nil {
		return err
	}
	c.announce(r, latest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.reports[r]; now.source.Version == latest.source.Version && now.generation == latest.generation && now.requested == latest.requested {
		delete(c.reports, r)
	} else {
		c.queue.Add(r)
	}
	return nil
}

// end removes the finalizer of an object whose source was removed.
func (c *Controller) end(ctx context.Context, r reference) error {
	c.mu.Lock()
	delete(c.known, r)
	delete(c.considered, r)
	c.mu.Unlock()
	if r.kind != Kind {
		return nil
	}
	u, err := c.get(r)
	if err != nil || u == nil || u.GetDeletionTimestamp() == nil {
		return err
	}
	return c.setFinalizers(ctx, u, slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return f == Finalizer }))
}

// writeStatus writes the status of a GitOps object, if it has changed.
func (c *Controller) writeStatus(ctx context.Context, r reference, latest report) error {
	u, err := c.get(r)
	if err != nil || u == nil {
		return err
	}
	o, err := readObject(u)
	if err != nil {
		return err
	}
	next := statusOf(o.Status, latest)
	if same(o.Status, next) {
		return nil
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": Group + "/" + Version, "kind": Kind, "metadata": map[string]any{"name": r.name, "namespace": r.namespace, "uid": u.GetUID()}, "status": next,
	})
	if err != nil {
		return err
	}
	force := true
	_, err = c.dynamic.Resource(gitOpsResource).Namespace(r.namespace).Patch(ctx, r.name, types.ApplyPatchType, data,
		meta.PatchOptions{FieldManager: manager, Force: &force}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && u.GetUID() != "" && c.replaced(ctx, r, u) {
		return nil // it was deleted
	}
	return err
}

// replaced reports whether an object was deleted or replaced by one of its name.
func (c *Controller) replaced(ctx context.Context, r reference, u *unstructured.Unstructured) bool {
	now, err := c.dynamic.Resource(gitOpsResource).Namespace(r.namespace).Get(ctx, r.name, meta.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && now.GetUID() != u.GetUID()
}

func same(a, b status) bool {
	x, errX := asJSON(a)
	y, errY := asJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func asJSON(s status) (v any, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(data, &v)
	return v, err
}

// statusOf returns the status for a report, which follows the status before.
func statusOf(before status, latest report) status {
	s := latest.source.Status
	next := status{
		ObservedGeneration: latest.generation, LastAttemptedRevision: s.Attempted, LastAppliedRevision: s.Applied,
		LastHandledReconcileAt: latest.requested, Asks: s.PendingRemoval, History: before.History,
	}
	if s.Applied != "" && s.Applied == latest.artifact.Revision {
		next.LastAppliedOriginRevision = latest.artifact.Origin()
	} else if s.Applied == before.LastAppliedRevision {
		next.LastAppliedOriginRevision = before.LastAppliedOriginRevision
	}
	for _, c := range s.Conditions {
		next.Conditions = append(next.Conditions, meta.Condition{
			Type: c.Type, Status: meta.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: meta.NewTime(c.LastTransition.UTC().Truncate(time.Second)), ObservedGeneration: latest.generation,
		})
	}
	for i, m := range s.Messages {
		if i == maxMessages-1 && len(s.Messages) > maxMessages {
			next.Messages = append(next.Messages, fmt.Sprintf("and %d more: see tko gitops status %s", len(s.Messages)-i, latest.source.Name))
			break
		}
		next.Messages = append(next.Messages, short(m))
	}
	if len(s.Items) > 0 {
		next.Inventory = &inventory{Count: len(s.Items)}
		for _, i := range s.Items[:min(maxEntries, len(s.Items))] {
			next.Inventory.Entries = append(next.Inventory.Entries, entry{Kind: i.Kind, Name: i.Name, ID: i.ID, Status: printable.Short(i.Status, maxStatus)})
		}
	}
	next.History = historyOf(before, next, latest)
	return next
}

func short(text string) string { return printable.Short(text, maxText) }

// historyOf adds the result of a revision to the history, once it is known.
func historyOf(before, next status, latest report) []snapshot {
	ready := readyOf(latest.source)
	if next.LastAttemptedRevision == "" || latest.artifact.Revision != next.LastAttemptedRevision || ready.Status == tko.ConditionUnknown || ready.Status == "" {
		return before.History
	}
	all := slices.Clone(before.History)
	at := meta.NewTime(latest.source.Updated.UTC().Truncate(time.Second))
	i := slices.IndexFunc(all, func(s snapshot) bool { return s.Digest == latest.artifact.Digest && s.Status == ready.Reason })
	if i == 0 && !at.After(all[0].Last.Time) && all[0].Metadata["revision"] == latest.artifact.Revision {
		return before.History
	}
	one := snapshot{Digest: latest.artifact.Digest, First: at, Status: ready.Reason, Metadata: map[string]string{"revision": latest.artifact.Revision}}
	if i >= 0 {
		one = all[i]
		all = slices.Delete(all, i, i+1)
	}
	one.Last, one.Total = at, one.Total+1
	one.Metadata = map[string]string{"revision": latest.artifact.Revision} // several revisions may have the same content
	all = slices.Insert(all, 0, one)
	return all[:min(maxHistory, len(all))]
}

// readyOf returns the Ready condition of a source; the zero value if there is none.
func readyOf(s tko.Source) tko.Condition {
	if c := tko.FindCondition(s.Status.Conditions, tko.ConditionReady); c != nil {
		return *c
	}
	return tko.Condition{}
}
