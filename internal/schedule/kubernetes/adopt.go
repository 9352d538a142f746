package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/krm"
)

// applyFirst applies an object that no inventory records as applied. It applies an
// existing object only if TKO made it, or if its annotation requests adoption. A
// namespace or a definition that TKO did not make is used without a change.
func (rc *reconciliation) applyFirst(ctx context.Context, o *object, s *state) error {
	live, err := rc.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	content := withIgnored(o.content, live, rc.ignored(o.key))
	switch {
	case live == nil:
		return rc.apply(ctx, o, s, content, false)
	case live.GetDeletionTimestamp() != nil:
		s.live, s.waits = live, "is being removed: it is recreated once its deletion has ended"
		return nil
	case o.annotation(AnnotationAdopt) == "true":
		if err := rc.conn.transferFields(ctx, o, live, allOfKubectl); err != nil {
			return err
		}
		return rc.apply(ctx, o, s, content, true)
	case rc.sharingInventory(o, live) != nil:
		return rc.share(ctx, o, s, live, content)
	case rc.wasApplied(o, live):
		return rc.apply(ctx, o, s, content, live.GetLabels()[LabelDeployment] == string(o.deployment))
	case o.isNamespace() || o.isDefinition():
		return rc.useFound(ctx, o, s, live, content)
	}
	s.live, s.problem = live, newProblem(o.String(), true, "%s", notOurs)
	return nil
}

// notOurs is the problem of an object that another client made.
const notOurs = "exists already, and TKO did not make it: annotate it with " + AnnotationAdopt + ": \"true\" to take it over, or give it another name"

// wasApplied returns whether TKO applied the object for the same deployment, or for
// another deployment of the site: a meta-scheduler may have been killed before it
// recorded the object.
func (rc *reconciliation) wasApplied(o *object, live *unstructured.Unstructured) bool {
	owner := tko.DeploymentID(live.GetLabels()[LabelDeployment])
	if fieldsOf(live) == "" || owner == "" {
		return false
	}
	return owner == o.deployment || rc.hasRecorded(string(owner), o.key)
}

// sharingInventory returns another site's inventory that names the namespace o, if
// the namespace is labelled with a deployment that is not of this site; nil
// otherwise. Sites of one cluster may share namespaces.
func (rc *reconciliation) sharingInventory(o *object, live *unstructured.Unstructured) *inventory {
	if live == nil || !o.isNamespace() || fieldsOf(live) == "" {
		return nil
	}
	label := live.GetLabels()[LabelDeployment]
	other, ok := rc.recorded.owner(o.key)
	if !ok || label == "" || label == string(o.deployment) || rc.hasRecorded(label, o.key) {
		return nil
	}
	return other
}

// share applies a namespace with its existing deployment label, if this site's
// deployment and the other site's describe it alike. With different descriptions,
// each site would undo the other's changes.
func (rc *reconciliation) share(ctx context.Context, o *object, s *state, live *unstructured.Unstructured, content map[string]any) error {
	other := rc.sharingInventory(o, live)
	content = withOwner(content, live.GetLabels()[LabelDeployment])
	would, err := rc.conn.apply(ctx, o, content, true, true)
	if err != nil {
		return err
	}
	s.live = live
	if found := differences(live, would); len(found) > 0 {
		s.problem = newProblem(o.String(), true, "is also in deployment %q of site %q in the same cluster, with another content: %s", other.deployment, other.site, describeDifferences(found))
		return nil
	}
	return rc.apply(ctx, o, s, content, true)
}

// useFound records an object that TKO did not make, if it is as the package describes
// it. TKO does not change the object, nor remove it when the package no longer has
// it.
func (rc *reconciliation) useFound(ctx context.Context, o *object, s *state, live *unstructured.Unstructured, content map[string]any) error {
	s.live = live
	var found []krm.Difference
	content = withoutOwner(content)
	if !containsAll(live.Object, content) { // a dry-run apply would add missing fields
		would, err := rc.conn.apply(ctx, o, content, true, true)
		if err != nil {
			return err
		}
		found = differences(live, would)
	}
	if len(found) > 0 {
		s.problem = newProblem(o.String(), true, "was there before, and TKO did not make it: %s. Annotate it with %s: \"true\" to take it over, or change the package to match it",
			describeDifferences(found), AnnotationAdopt)
		return nil
	}
	s.entry = entry{Version: o.version, Step: o.step, Digest: o.digest, Found: true}
	return nil
}

// containsAll returns whether has holds all fields of want, with the same values.
func containsAll(has, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		has, ok := has.(map[string]any)
		for name, v := range want {
			inner, there := has[name]
			ok = ok && there && containsAll(inner, v)
		}
		return ok
	case []any:
		has, ok := has.([]any)
		ok = ok && len(has) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = containsAll(has[i], want[i])
		}
		return ok
	default:
		return has == want
	}
}

// withOwner returns a copy of content with a deployment label.
func withOwner(content map[string]any, id string) map[string]any {
	content = maps.Clone(content)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[LabelDeployment] = id
	metadata["labels"], content["metadata"] = labels, metadata
	return content
}

// withoutOwner returns a copy of content without the deployment label.
func withoutOwner(content map[string]any) map[string]any {
	content = withOwner(content, "")
	metadata, _ := content["metadata"].(map[string]any) // a copy, as are its labels
	labels, _ := metadata["labels"].(map[string]any)
	delete(labels, LabelDeployment)
	if len(labels) == 0 {
		delete(metadata, "labels")
	}
	return content
}

// A transfer selects the fields that TKO takes over from kubectl's field managers.
type transfer int

const (
	allOfKubectl    transfer = iota // all of them; the next apply removes those that are not in the package
	sharedByKubectl                 // the ones that TKO also owns; they are removed when they leave the package
)

// transferFields moves ownership of fields from kubectl's field managers to TKO.
// Otherwise the API server would retain a field that leaves the package, as long as
// another manager owns it.
func (c *cluster) transferFields(ctx context.Context, o *object, live *unstructured.Unstructured, which transfer) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		entries, changed, err := transferred(live.GetManagedFields(), o.apiVersion(), which)
		if err != nil || !changed {
			return err
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": entries},
			{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		})
		if err != nil {
			return err
		}
		at, err := c.of(ctx, o.key, o.version)
		if err != nil {
			return err
		}
		if err := fence.Check(ctx); err != nil {
			return err
		}
		_, err = at.Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
		if !apierrors.IsConflict(err) || attempt == attempts {
			if err != nil {
				return fmt.Errorf("take over the fields of kubectl: %w", withoutStatus(err))
			}
			return nil
		}
		if live, err = c.get(ctx, o.key, o.version); err != nil || live == nil {
			return err
		}
	}
}

// withoutStatus returns err without its API status if it is a conflict, so that
// callers don't mistake it for the status of another request.
func withoutStatus(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("other clients keep changing it: %s", bounded(err.Error()))
	}
	return err
}

// transferred returns the managed fields after the transfer, and whether it changed
// any.
func transferred(entries []metav1.ManagedFieldsEntry, apiVersion string, which transfer) (after []metav1.ManagedFieldsEntry, changed bool, err error) {
	mine := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
	})
	ours := &fieldpath.Set{}
	if mine >= 0 {
		if ours, err = setOf(entries[mine]); err != nil {
			return nil, false, err
		}
	}
	all := ours
	for i, e := range entries {
		if i == mine {
			after = append(after, e)
			continue
		}
		if !isKubectl(e) {
			after = append(after, e)
			continue
		}
		theirs, err := setOf(e)
		if err != nil {
			return nil, false, err
		}
		rest := &fieldpath.Set{}
		if which == sharedByKubectl {
			rest = theirs.Difference(ours)
		} else {
			all = all.Union(theirs)
		}
		switch {
		case rest.Equals(theirs) && !rest.Empty():
			after = append(after, e)
			continue
		case !rest.Empty():
			if e.FieldsV1, err = fieldsOfSet(rest); err != nil {
				return nil, false, err
			}
			after = append(after, e)
		}
		changed = true
	}
	if !changed || which == sharedByKubectl {
		return after, changed, nil
	}
	fields, err := fieldsOfSet(all)
	if err != nil {
		return nil, false, err
	}
	if mine < 0 {
		now := metav1.Now()
		return append(after, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, Time: &now, FieldsType: "FieldsV1", FieldsV1: fields,
		}), true, nil
	}
	for i := range after {
		if after[i].Manager == manager && after[i].Operation == metav1.ManagedFieldsOperationApply && after[i].Subresource == "" {
			after[i].FieldsV1 = fields
		}
	}
	return after, true, nil
}

// isKubectl returns whether a kubectl command manages the fields, or they were set
// before the API server tracked managers.
func isKubectl(e metav1.ManagedFieldsEntry) bool {
	return e.Subresource == "" && (e.Manager == "kubectl" || strings.HasPrefix(e.Manager, "kubectl-") || e.Manager == "before-first-apply")
}

func setOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("read the fields that %q manages: %w", e.Manager, err)
	}
	return set, nil
}

func fieldsOfSet(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	var b bytes.Buffer
	if err := set.ToJSONStream(&b); err != nil {
		return nil, err
	}
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(b.Bytes())
	return fields, nil
}
