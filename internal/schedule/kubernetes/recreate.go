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

	"github.com/tko-orchestrator/tko"
)

// AnnotationRecreate with the value true has an object removed and made anew
// when only that makes it what the package says: when fields differ that can't
// be changed where it is.
const AnnotationRecreate = "tko.nephio.org/recreate"

// recreating is said of an object that goes to be made anew.
const recreating = "is being removed, to be made anew"

// An immutableError says that an object can't become what it should where it is.
type immutableError struct {
	object string
	fields []string
	hint   string
	said   error
}

func (e *immutableError) Error() string {
	return fmt.Sprintf("can't be changed where it is: %s can't change; %s (%s)", e.what(), e.hint, bounded(e.said.Error()))
}

func (e *immutableError) what() string {
	if len(e.fields) == 0 {
		return "some of its fields"
	}
	return strings.Join(e.fields, ", ")
}

// recreate is asked when the API server has refused a change of an object as
// invalid. It answers what it was told if the object would be refused in any
// case, an immutableError if it may not be made anew, and nil if it is, or will
// be as soon as the old one is gone.
func (l *look) recreate(ctx context.Context, o *object, s *state, content map[string]any, said error) error {
	live, err := l.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	if live == nil || !l.isOurs(o.key, live) {
		return said
	}
	valid, err := l.conn.creatable(ctx, o, content)
	if err != nil {
		return err
	}
	if !valid {
		return said
	}
	refused := &immutableError{object: o.String(), fields: causes(said), said: said}
	switch {
	case o.isNamespace() || o.isDefinition():
		refused.hint = "nor is it made anew, for what is in it would go with it: remove it by hand"
		return refused
	case o.annotation(AnnotationRecreate) != "true":
		refused.hint = fmt.Sprintf("to have it removed and made anew, annotate it with %s: %q", AnnotationRecreate, "true")
		return refused
	case live.GetDeletionTimestamp() == nil:
		l.target.options.Log.InfoContext(ctx, "object is made anew", "site", string(l.site.ID), "object", o.String(), "for", refused.what())
		if err := l.conn.remove(ctx, o.key, o.version, live); err != nil {
			return err
		}
		l.gone.Add(1)
	}
	now, err := l.conn.get(ctx, o.key, o.version)
	if err != nil {
		return err
	}
	if now != nil && now.GetUID() == live.GetUID() {
		s.live, s.waits = now, recreating
		return nil
	}
	return l.apply(ctx, o, s, content, true)
}

// isOurs says whether an object is there because we applied it.
func (l *look) isOurs(k key, live *unstructured.Unstructured) bool {
	i := l.recorded.mine[tko.DeploymentID(live.GetLabels()[LabelDeployment])]
	if i == nil || fieldsOf(live) == "" {
		return false
	}
	_, ok := i.entries[k]
	return ok
}

// creatable says whether the API server would take an object if it weren't
// there yet.
func (c *cluster) creatable(ctx context.Context, o *object, content map[string]any) (bool, error) {
	at, err := c.of(ctx, o.key, o.version)
	if err != nil {
		return false, err
	}
	r := &unstructured.Unstructured{Object: content}
	_, err = at.Create(ctx, r.DeepCopy(), metav1.CreateOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // that is looked at after all else
		return true, nil
	case isAway(err):
		return false, err
	default:
		return false, nil
	}
}

// causes are the fields that an API server names.
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
