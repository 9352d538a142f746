package tko

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko/krm"
)

// The kinds of errors. Test for them with errors.Is. Any other error is a
// fault of TKO itself.
var (
	// ErrInvalid: the request is wrong. Remedy: change it.
	ErrInvalid = krm.ErrInvalid
	// ErrNotFound: the named entity does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the record has changed. Remedy: read it again.
	ErrConflict = errors.New("conflict")
	// ErrBusy: the same request may succeed later.
	ErrBusy = errors.New("busy")
	// ErrStopped: a user has stopped what the request is about (see [Stop]). It is an
	// ErrBusy, too: the same request may succeed when that ends.
	ErrStopped = fmt.Errorf("stopped: %w", ErrBusy)
	// ErrDenied: the caller is not allowed to do this.
	ErrDenied = errors.New("denied")
	// ErrUnauthenticated: the caller has no valid credentials. Remedy: log in.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrGone: changes that old are no longer retained. Remedy: list again.
	ErrGone = errors.New("gone")
	// ErrUnavailable: the server or its database can't be reached. The request
	// may have taken effect; the same request may succeed later.
	ErrUnavailable = errors.New("unavailable")
)

// A Finding is one error in a package.
type Finding struct {
	Resource krm.Identity
	Path     string // dotted, from the resource's root; "" is the resource
	Reason   string
}

// String returns, for example, `apps/v1 Deployment "web": spec.replicas: must
// be an integer`.
func (f Finding) String() string {
	if f.Path == "" {
		return fmt.Sprintf("%s: %s", f.Resource, f.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", f.Resource, f.Path, f.Reason)
}

// An InvalidPackageError lists all errors in a package. It is an [ErrInvalid].
type InvalidPackageError struct {
	Findings []Finding
	// ByTemplates reports whether at least one finding comes from a CRD of a
	// template rather than from the package's own CRDs.
	ByTemplates bool
}

func (e *InvalidPackageError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "invalid package: " + strings.Join(lines, "; ")
}

// Is reports true for ErrInvalid.
func (e *InvalidPackageError) Is(target error) bool { return target == ErrInvalid }

// Errorf makes an error of a kind (ErrInvalid and so on) whose text is the
// message alone. Errors wrapped with %w stay visible to errors.Is and
// errors.As; the kind is the given one.
func Errorf(kind error, format string, args ...any) error {
	return &kindError{kind: kind, err: fmt.Errorf(format, args...)}
}

// NotFound returns the ErrNotFound of an entity, such as `site "nowhere": not
// found`.
func NotFound[ID ~string](kind Kind, id ID) error {
	return fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
}

type kindError struct {
	kind error
	err  error
}

func (e *kindError) Error() string        { return e.err.Error() }
func (e *kindError) Unwrap() error        { return errors.Unwrap(e.err) }
func (e *kindError) Is(target error) bool { return errors.Is(e.kind, target) }
