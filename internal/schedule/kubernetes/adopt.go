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
	"github.com/tko-orchestrator/tko/krm"
)

// begin applies an object that no inventory records as applied. An object that
// exists is applied only if TKO made it, or if it is to be adopted. A namespace or
// a definition that TKO did not make is used as it is.
func (l *look) begin(ctx context.Context, o *object, s *state) error {
	live, err := l.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	content := withIgnored(o.content, live, l.spec.ignored(o.key))
	switch {
	case live == nil:
		return l.apply(ctx, o, s, content, false)
	case live.GetDeletionTimestamp() != nil:
		s.live, s.waits = live, "is being removed: it is made when it is gone"
		return nil
	case o.annotation(AnnotationAdopt) == "true":
		if err := l.conn.takeFields(ctx, o, live, allOfKubectl); err != nil {
			return err
		}
		return l.apply(ctx, o, s, content, true)
	case l.sharer(o, live) != nil:
		return l.share(ctx, o, s, live, content)
	case l.wasApplied(o, live):
		return l.apply(ctx, o, s, content, live.GetLabels()[LabelDeployment] == string(o.deployment))
	case o.isNamespace() || o.isDefinition():
		return l.use(ctx, o, s, live, content)
	}
	s.live = live
	p := problemOf(o.String(), true, "is there already, and TKO did not make it: annotate it with %s: \"true\" to take it over, or give it another name", AnnotationAdopt)
	s.problem = &p
	return nil
}

// wasApplied says whether TKO applied an object for the same deployment, or for
// another one of the site: a meta-scheduler may have been killed before it
// recorded that.
func (l *look) wasApplied(o *object, live *unstructured.Unstructured) bool {
	owner := tko.DeploymentID(live.GetLabels()[LabelDeployment])
	if fieldsOf(live) == "" || owner == "" {
		return false
	}
	return owner == o.deployment || l.hasRecorded(string(owner), o.key)
}

// sharer returns the inventory of another site that names a namespace, if it has
// the label of a deployment that isn't of this site; nil if there is none. Sites
// of one cluster may share namespaces.
func (l *look) sharer(o *object, live *unstructured.Unstructured) *inventory {
	if live == nil || !o.isNamespace() || fieldsOf(live) == "" {
		return nil
	}
	label := live.GetLabels()[LabelDeployment]
	other, ok := l.recorded.owner(o.key)
	if !ok || label == "" || label == string(o.deployment) || l.hasRecorded(label, o.key) {
		return nil
	}
	return other
}

// share applies a namespace with the label that it has, if this site's deployment
// says the same of it as that of another site: else each of them would undo what
// the other one did.
func (l *look) share(ctx context.Context, o *object, s *state, live *unstructured.Unstructured, content map[string]any) error {
	other := l.sharer(o, live)
	content = withoutOwner(content)
	metadata, _ := content["metadata"].(map[string]any) // a copy
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]any{}
	}
	labels[LabelDeployment] = live.GetLabels()[LabelDeployment]
	metadata["labels"] = labels
	would, err := l.conn.apply(ctx, o, content, true, true)
	if err != nil {
		return err
	}
	s.live = live
	if found := differences(live, would); len(found) > 0 {
		p := problemOf(o.String(), true, "is in deployment %q of site %q in the same cluster, too, and says something else there: %s", other.deployment, other.site, describeDifferences(found))
		s.problem = &p
		return nil
	}
	return l.apply(ctx, o, s, content, true)
}

// use records an object that TKO did not make, if it is as the package says. The
// object isn't changed, and it stays when the package doesn't have it any more.
func (l *look) use(ctx context.Context, o *object, s *state, live *unstructured.Unstructured, content map[string]any) error {
	s.live = live
	var found []krm.Difference
	if content = withoutOwner(content); !holds(live.Object, content) { // or the API server would add what is missing
		would, err := l.conn.apply(ctx, o, content, true, true)
		if err != nil {
			return err
		}
		found = differences(live, would)
	}
	if len(found) > 0 {
		p := problemOf(o.String(), true, "was there before, and TKO did not make it: %s. Annotate it with %s: \"true\" to take it over, or write it as it is",
			describeDifferences(found), AnnotationAdopt)
		s.problem = &p
		return nil
	}
	s.entry = entry{Version: o.version, Step: o.step, Digest: o.digest, Found: true}
	return nil
}

// holds says whether a value has all that another one has.
func holds(has, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		has, ok := has.(map[string]any)
		for name, v := range want {
			inner, there := has[name]
			ok = ok && there && holds(inner, v)
		}
		return ok
	case []any:
		has, ok := has.([]any)
		ok = ok && len(has) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = holds(has[i], want[i])
		}
		return ok
	default:
		return has == want
	}
}

// withoutOwner is a content without our label.
func withoutOwner(content map[string]any) map[string]any {
	content = maps.Clone(content)
	metadata, _ := content["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	labels, _ := metadata["labels"].(map[string]any)
	labels = maps.Clone(labels)
	delete(labels, LabelDeployment)
	if metadata["labels"] = labels; len(labels) == 0 {
		delete(metadata, "labels")
	}
	content["metadata"] = metadata
	return content
}

// A taking says which of the fields that kubectl's managers own become ours.
type taking int

const (
	allOfKubectl    taking = iota // all: what of them isn't in the package goes with the next apply
	sharedByKubectl               // those that are ours, too: they go when they leave the package
)

// takeFields makes fields of an object that kubectl's managers own ours: the API
// server keeps a field that leaves the package as long as another manager owns it.
func (c *cluster) takeFields(ctx context.Context, o *object, live *unstructured.Unstructured, which taking) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		entries, changed, err := taken(live.GetManagedFields(), o.apiVersion(), which)
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
		_, err = at.Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: manager})
		if !apierrors.IsConflict(err) || attempt == attempts {
			if err != nil {
				return fmt.Errorf("taking over the fields of kubectl: %w", withoutStatus(err))
			}
			return nil
		}
		if live, err = c.get(ctx, o.key, o.version); err != nil || live == nil {
			return err
		}
	}
}

// withoutStatus is an error that isn't taken for the API server's answer to
// another request, unless the cluster is away.
func withoutStatus(err error) error {
	if apierrors.IsConflict(err) {
		return fmt.Errorf("it is changed all the time: %s", bounded(err.Error()))
	}
	return err
}

// taken returns managed fields after those of kubectl's managers have become
// ours, and says whether that changes any.
func taken(entries []metav1.ManagedFieldsEntry, apiVersion string, which taking) (after []metav1.ManagedFieldsEntry, changed bool, err error) {
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

// isKubectl says whether fields are managed by a command of kubectl: by hand, so
// to speak, or before there were managers.
func isKubectl(e metav1.ManagedFieldsEntry) bool {
	return e.Subresource == "" && (e.Manager == "kubectl" || strings.HasPrefix(e.Manager, "kubectl-") || e.Manager == "before-first-apply")
}

func setOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	if e.FieldsV1 == nil {
		return set, nil
	}
	if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil, fmt.Errorf("reading the fields that %q manages: %w", e.Manager, err)
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
