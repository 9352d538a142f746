package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A fieldsError reports invalid fields of an object.
type fieldsError struct{ list field.ErrorList }

func (e *fieldsError) Error() string        { return e.list.ToAggregate().Error() }
func (e *fieldsError) Is(target error) bool { return target == tko.ErrInvalid }

// failed returns an error as a Kubernetes status; nil for nil. pkg is the package that the
// client wrote, if any.
func (s *storage) failed(ctx context.Context, name string, pkg krm.Package, err error) error {
	if err == nil {
		return nil
	}
	gk, gr := s.kind.gvk().GroupKind(), s.kind.gr()
	if own := apierrors.APIStatus(nil); errors.As(err, &own) {
		return err
	}
	if wrong, ok := errors.AsType[*fieldsError](err); ok {
		return apierrors.NewInvalid(gk, name, wrong.list)
	}
	if invalid, ok := errors.AsType[*tko.InvalidPackageError](err); ok {
		return apierrors.NewInvalid(gk, name, findings(pkg, invalid))
	}
	if wrong, ok := errors.AsType[krm.Errors](err); ok && pkg != nil {
		return apierrors.NewInvalid(gk, name, malformed(pkg, wrong))
	}
	if _, ok := errors.AsType[*record.ExistsError](err); ok {
		return apierrors.NewAlreadyExists(gr, name)
	}
	switch {
	case errors.Is(err, tko.ErrInvalid):
		if pkg == nil && name == "" {
			return apierrors.NewBadRequest(err.Error())
		}
		return invalid(fmt.Sprintf("%s %q is invalid: %s", gk, name, printable.Once(err.Error())), name, s.kind, err)
	case errors.Is(err, tko.ErrNotFound):
		return apierrors.NewNotFound(gr, name)
	case errors.Is(err, tko.ErrConflict):
		return apierrors.NewConflict(gr, name, err)
	case errors.Is(err, tko.ErrStopped): // as for an exceeded quota: clients don't repeat the request at once
		return apierrors.NewForbidden(gr, name, err)
	case errors.Is(err, tko.ErrBusy):
		return apierrors.NewTooManyRequests(err.Error(), 1)
	case errors.Is(err, tko.ErrDenied):
		return apierrors.NewForbidden(gr, name, err)
	case errors.Is(err, tko.ErrUnauthenticated):
		return apierrors.NewUnauthorized(err.Error())
	case errors.Is(err, tko.ErrGone):
		return apierrors.NewResourceExpired(err.Error())
	case errors.Is(err, tko.ErrUnavailable):
		return apierrors.NewServiceUnavailable(err.Error())
	case ctx.Err() != nil:
		return apierrors.NewTimeoutError("the request was ended: "+ctx.Err().Error(), 1)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // the server's process noticed first
		return apierrors.NewTimeoutError("the request was ended: "+err.Error(), 1)
	}
	id := uuid.NewString()
	s.log.ErrorContext(ctx, "request failed", "resource", s.kind.resource, "name", name, "id", id, "err", err)
	return apierrors.NewInternalError(fmt.Errorf("see the server's log (id %s)", id))
}

func invalid(message, name string, k *kind, err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: message,
		Details: &metav1.StatusDetails{
			Group: k.gvk().Group, Kind: k.name, Name: name,
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: err.Error(), Field: "spec"}},
		},
	}}
}

// findings returns the errors of a package with the paths in the object.
func findings(pkg krm.Package, invalid *tko.InvalidPackageError) field.ErrorList {
	var list field.ErrorList
	for _, f := range invalid.Findings {
		list = append(list, finding(pkg, 0, f))
	}
	return list
}

func malformed(pkg krm.Package, errs krm.Errors) field.ErrorList {
	var list field.ErrorList
	for _, e := range errs {
		list = append(list, finding(pkg, e.Index, tko.Finding{Resource: e.Resource, Path: e.Path, Reason: e.Reason}))
	}
	return list
}

// finding returns an error with the path of its resource: by index (from 1), or
// the first resource of that identity, or, if the resource came from a template
// and not from the object, the path of all resources.
func finding(pkg krm.Package, index int, f tko.Finding) *field.Error {
	path := resourcesPath.String()
	if index < 1 || index > len(pkg) || pkg[index-1].Identity() != f.Resource {
		index = 1 + slices.IndexFunc(pkg, func(r krm.Resource) bool { return r.Identity() == f.Resource })
	}
	if index > 0 {
		path = resourcesPath.Index(index - 1).String()
	}
	if f.Path != "" {
		path += "." + f.Path
	}
	return &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: f.Resource.String(), Detail: f.Reason}
}
