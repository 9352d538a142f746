package krm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrInvalid is the kind of all errors that are the fault of the input.
var ErrInvalid = errors.New("invalid")

// An Error is one thing that is wrong with a package, and where. It is an
// [ErrInvalid].
type Error struct {
	Document int      // of the YAML stream, counted from 1; 0 if not known
	Index    int      // of the resource, counted from 1; 0 if it isn't about one
	Resource Identity // zero if not known
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

// Is makes it an ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unwrap answers the parser's error, if that is what it is.
func (e *Error) Unwrap() error { return e.cause }

// Errors are several, at least one.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "; ")
}

// Unwrap answers them one by one.
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

// under puts a map key in front of an error's path.
func (e *Error) under(key string) *Error {
	key = brief(key, 100)
	switch {
	case e.Path == "":
		e.Path = key
	case e.Path[0] == '[':
		e.Path = key + e.Path
	default:
		e.Path = key + "." + e.Path
	}
	// A path is built from its end, deep nesting must not make it long.
	e.Path = brief(e.Path, 400)
	return e
}

// item puts a list index in front of an error's path.
func (e *Error) item(i int) *Error {
	index := "[" + strconv.Itoa(i) + "]"
	if e.Path != "" && e.Path[0] != '[' {
		index += "."
	}
	e.Path = brief(index+e.Path, 400)
	return e
}

// brief cuts a text that may come from a hostile input.
func brief(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
