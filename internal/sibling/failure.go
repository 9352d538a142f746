package sibling

import (
	"context"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// kinds are the errors that errors.Is finds on the other side as well.
var kinds = map[string]error{
	"invalid": tko.ErrInvalid, "not found": tko.ErrNotFound, "conflict": tko.ErrConflict, "busy": tko.ErrBusy, "stopped": tko.ErrStopped,
	"denied": tko.ErrDenied, "unauthenticated": tko.ErrUnauthenticated, "gone": tko.ErrGone, "unavailable": tko.ErrUnavailable,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// types are the types of errors that errors.As finds on the other side as well.
var types = map[string]errorType{}

type errorType struct {
	encode func(err error) (data []byte, ok bool)
	decode func(data []byte) (error, error)
}

// RegisterError lets errors.As find errors of a type on the other side, with their
// exported fields. It is called before any other function of the package.
func RegisterError[T error](name string) {
	types[name] = errorType{
		encode: func(err error) ([]byte, bool) {
			found, ok := errors.AsType[T](err)
			if !ok {
				return nil, false
			}
			data, err := encoder.Marshal(found)
			return data, err == nil
		},
		decode: func(data []byte) (error, error) {
			var found T
			err := decoder.Unmarshal(data, &found)
			return found, err
		},
	}
}

func init() {
	RegisterError[*tko.InvalidPackageError]("package")
	RegisterError[krm.Errors]("resources")
}

// A Failure is an error in transit.
type Failure struct {
	Message string
	Kinds   []string
	Types   map[string][]byte
}

// NewFailure returns the form of an error that can be sent; nil for nil.
func NewFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Message: err.Error(), Types: map[string][]byte{}}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, name)
		}
	}
	for name, t := range types {
		if data, ok := t.encode(err); ok {
			f.Types[name] = data
		}
	}
	return f
}

// An otherError is an error of the other process.
type otherError struct {
	message string
	kinds   []error
	types   []error
}

// Err returns the error; nil for nil.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	e := &otherError{message: f.Message}
	for _, name := range f.Kinds {
		e.kinds = append(e.kinds, kinds[name])
	}
	for name, data := range f.Types {
		if found, err := types[name].decode(data); err == nil {
			e.types = append(e.types, found)
		}
	}
	return e
}

func (e *otherError) Error() string        { return e.message }
func (e *otherError) Is(target error) bool { return slices.Contains(e.kinds, target) }
func (e *otherError) Unwrap() []error      { return e.types }
