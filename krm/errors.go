package krm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko/internal/printable"
)

// ErrInvalid is the kind of all errors in the input.
var ErrInvalid = errors.New("invalid")

// An Error is an error in a package, with its place. It is an [ErrInvalid].
type Error struct {
	Document int      // of the YAML stream, from 1; 0 if unknown
	Index    int      // of the resource, from 1; 0 if the error isn't in a resource
	Resource Identity // zero if unknown
	Path     string   // dotted, from the resource's root; "" is the resource
	Reason   string

	cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Document > 0 {
		fmt.Fprintf(&b, "document %d: ", e.Document)
	}
	if e.Index > 0 {
		fmt.Fprintf(&b, "resource %d", e.Index)
		if e.Resource != (Identity{}) {
			fmt.Fprintf(&b, " (%s)", e.Resource)
		}
		b.WriteString(": ")
	} else if e.Resource != (Identity{}) {
		fmt.Fprintf(&b, "%s: ", e.Resource)
	}
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Is reports true for ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the parser's error, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Errors are one or more errors.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "; ")
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, one := range e {
		errs[i] = one
	}
	return errs
}

func invalidf(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}

// under prepends a map key to an error's path.
func (e *Error) under(key string) *Error {
	key = printable.Short(key, 100)
	switch {
	case e.Path == "":
		e.Path = key
	case e.Path[0] == '[':
		e.Path = key + e.Path
	default:
		e.Path = key + "." + e.Path
	}
	// The path is built from its end. Deep nesting must not make it long.
	e.Path = printable.Short(e.Path, 400)
	return e
}

// item prepends a list index to an error's path.
func (e *Error) item(i int) *Error {
	index := "[" + strconv.Itoa(i) + "]"
	if e.Path != "" && e.Path[0] != '[' {
		index += "."
	}
	e.Path = printable.Short(index+e.Path, 400)
	return e
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
