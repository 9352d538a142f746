package tko

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// The kinds of errors. Test for them with errors.Is; anything else is a fault
// of TKO's own.
var (
	// ErrInvalid: the request is wrong. Change it.
	ErrInvalid = krm.ErrInvalid
	// ErrNotFound: the thing named does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the record moved on. Read it again.
	ErrConflict = errors.New("conflict")
	// ErrBusy: the same request may work later.
	ErrBusy = errors.New("busy")
	// ErrDenied: the caller may not do this.
	ErrDenied = errors.New("denied")
	// ErrGone: changes that old are no longer kept. List again.
	ErrGone = errors.New("gone")
	// ErrUnavailable: the server or its database is away. The same request may
	// work later, or may have worked.
	ErrUnavailable = errors.New("unavailable")
)

// A Finding is one thing that is wrong with a package.
type Finding struct {
	Resource krm.Identity
	Path     string // dotted, from the resource's root; "" is the resource
	Reason   string
}

// String is "apps/v1 Deployment "web": spec.replicas: must be an integer".
func (f Finding) String() string {
	if f.Path == "" {
		return fmt.Sprintf("%s: %s", f.Resource, f.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", f.Resource, f.Path, f.Reason)
}

// An InvalidPackageError says everything that is wrong with a package, at
// once. It is an [ErrInvalid].
type InvalidPackageError struct {
	Findings []Finding
	// ByTemplates reports whether CRDs of templates, not the package's own,
	// found something.
	ByTemplates bool
}

func (e *InvalidPackageError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "invalid package: " + strings.Join(lines, "; ")
}

// Is makes it an ErrInvalid.
func (e *InvalidPackageError) Is(target error) bool { return target == ErrInvalid }

// Errorf makes an error of a kind (ErrInvalid and so on) whose text is the
// message alone. Errors wrapped with %w stay visible to errors.Is and
// errors.As; the kind is the one given.
func Errorf(kind error, format string, args ...any) error {
	return &kindError{kind: kind, err: fmt.Errorf(format, args...)}
}

// NotFound is the ErrNotFound of an entity: site "nowhere": not found.
func NotFound[ID ~string](kind Kind, id ID) error {
	return fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
}

type kindError struct {
	kind error
	err  error
}

func (e *kindError) Error() string        { return e.err.Error() }
func (e *kindError) Unwrap() error        { return errors.Unwrap(e.err) }
func (e *kindError) Is(target error) bool { return target == e.kind }
