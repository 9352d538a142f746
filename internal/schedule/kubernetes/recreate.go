package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AnnotationRecreate with the value true allows TKO to delete and recreate an object
// if immutable fields have to change.
const AnnotationRecreate = "tko.nephio.org/recreate"

// recreating is the reason of an object that is deleted to be recreated.
const recreating = "is being removed, to be recreated"

// An immutableError reports that an object can't be updated, because its fields are
// immutable.
type immutableError struct {
	fields []string
	hint   string
	cause  error
}

func (e *immutableError) Error() string {
	return fmt.Sprintf("can't be updated: %s can't change; %s (%s)", e.what(), e.hint, bounded(e.cause.Error()))
}

func (e *immutableError) what() string {
	if len(e.fields) == 0 {
		return "some of its fields"
	}
	return strings.Join(e.fields, ", ")
}

// recreate deletes and recreates an object whose update the API server rejected as
// invalid with the error said. It returns said if the API server would also reject a
// new object, an immutableError if the object must not be recreated, and nil if it is
// recreated, or will be as soon as the old one is deleted.
func (rc *reconciliation) recreate(ctx context.Context, o *object, s *state, content map[string]any, said error) error {
	live, err := rc.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	if live == nil || !rc.isOurs(o.key, live) {
		return said
	}
	valid, err := rc.conn.creatable(ctx, o, content)
	if err != nil {
		return err
	}
	if !valid {
		return said
	}
	refused := &immutableError{fields: causes(said), cause: said}
	switch {
	case o.isNamespace() || o.isDefinition():
		refused.hint = "it is not recreated, because that would delete its contents: delete it by hand"
		return refused
	case o.annotation(AnnotationRecreate) != "true":
		refused.hint = fmt.Sprintf("to have it deleted and recreated, annotate it with %s: %q", AnnotationRecreate, "true")
		return refused
	case live.GetDeletionTimestamp() == nil:
		rc.target.options.Log.InfoContext(ctx, "recreating an object", "site", string(rc.site.ID), "object", o.String(), "for", refused.what())
		if err := rc.conn.remove(ctx, o.key, o.version, live, metav1.DeletePropagationBackground); err != nil {
			return err
		}
		rc.removedCount.Add(1)
	}
	now, err := rc.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	if now != nil && now.GetUID() == live.GetUID() {
		s.live, s.waits = now, recreating
		return nil
	}
	return rc.apply(ctx, o, s, content, true)
}

// isOurs returns whether TKO applied an existing object.
func (rc *reconciliation) isOurs(k key, live *unstructured.Unstructured) bool {
	return fieldsOf(live) != "" && rc.hasRecorded(live.GetLabels()[LabelDeployment], k)
}

// creatable returns whether the API server would accept an object if it did not
// exist.
func (c *cluster) creatable(ctx context.Context, o *object, content map[string]any) (bool, error) {
	at, err := c.of(ctx, o.key, o.version)
	if err != nil {
		return false, err
	}
	r := &unstructured.Unstructured{Object: content}
	_, err = at.Create(ctx, r.DeepCopy(), metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // the API server validates before it checks for existence
		return true, nil
	case isUnreachable(err):
		return false, err
	default:
		return false, nil
	}
}

// causes returns the first few fields that the API server names in an error.
func causes(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, c := range status.Status().Details.Causes {
		if c.Field != "" && !slices.Contains(fields, c.Field) {
			fields = append(fields, c.Field)
		}
	}
	const few = 5
	if len(fields) > few {
		fields = append(fields[:few], "…")
	}
	return fields
}
