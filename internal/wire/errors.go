package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Domain is that of our google.rpc.ErrorInfo details.
const Domain = "tko"

// ErrUnavailable is the kind of errors of a server, or its database, that
// can't be reached.
var ErrUnavailable = tko.ErrUnavailable

// DefaultErrorSize bounds how many bytes an error may take on the wire, as
// long as the client doesn't say that it takes more. Errors travel in HTTP/2
// trailers, and what many clients accept there is 8 KiB at most: a bigger
// error would not arrive at all.
const DefaultErrorSize = 6 << 10

// kinds maps error kinds to status codes. Where two share a code, the reason
// tells them apart, and the first is the kind of a status without a reason.
var kinds = []struct {
	kind   error
	code   codes.Code
	reason string
}{
	{tko.ErrInvalid, codes.InvalidArgument, "INVALID"},
	{tko.ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{tko.ErrConflict, codes.Aborted, "CONFLICT"},
	{tko.ErrBusy, codes.Aborted, "BUSY"},
	{tko.ErrDenied, codes.PermissionDenied, "DENIED"},
	{tko.ErrGone, codes.OutOfRange, "GONE"},
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
}

// Status is what a client gets to know of an error, within size bytes (see
// [DefaultErrorSize]). It is nil for errors of no kind: their text is not for
// clients.
func Status(err error, size int) *status.Status {
	i := kindOf(err)
	if i < 0 {
		return nil
	}
	kind := kinds[i]
	// The text travels twice: as the message, and in the details in base64,
	// where every violation says a part of it once more.
	text := cut(err.Error(), size/4)
	st := status.New(kind.code, text)
	if kind.reason == "" {
		return st
	}
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: kind.reason, Domain: Domain}); err == nil {
		st = detailed
	}
	var invalid *tko.InvalidPackageError
	if !errors.As(err, &invalid) {
		return st
	}
	if detailed, err := st.WithDetails(violations(invalid.Findings, size/4)); err == nil {
		st = detailed
	}
	return st
}

// kindOf is the index of the outermost kind of an error, or -1: an error that
// was given a kind may wrap one of another.
func kindOf(err error) int {
	for i, k := range kinds {
		if err == k.kind { //nolint:errorlint // looks at one layer at a time
			return i
		}
		if is, ok := err.(interface{ Is(error) bool }); ok && is.Is(k.kind) {
			return i
		}
	}
	switch wrapper := err.(type) { //nolint:errorlint // the same
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil {
			return kindOf(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if i := kindOf(inner); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// violations writes as many findings as fit in.
func violations(findings []tko.Finding, size int) *errdetails.BadRequest {
	m := &errdetails.BadRequest{}
	for _, f := range findings {
		field := f.Resource.String()
		if f.Path != "" {
			field += ": " + f.Path
		}
		if size -= len(field) + len(f.Reason) + 8; size < 0 {
			break
		}
		m.FieldViolations = append(m.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field:       strings.ToValidUTF8(field, "\uFFFD"),
			Description: strings.ToValidUTF8(f.Reason, "\uFFFD"),
		})
	}
	return m
}

// cut bounds a text to size bytes as HTTP/2 carries them: what is not
// printable ASCII takes three each.
func cut(text string, size int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	used := 0
	for i, c := range text {
		n := 1
		if c < ' ' || c > '~' || c == '%' {
			n = 3 * utf8.RuneLen(c)
		}
		if used += n; used > size {
			return text[:i] + fmt.Sprintf(" ... (%d more characters)", utf8.RuneCountInString(text[i:]))
		}
	}
	return text
}

// Error is the inverse of [Status]: the error that a call of a method of
// tko.Data ended with has the kind that it had on the server, and the same
// text. nil stays nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	reason, findings := details(st)
	e := &remoteError{status: st, text: st.Message(), said: reason != ""}
	for _, k := range kinds {
		if k.code == st.Code() && (reason == "" || k.reason == "" || k.reason == reason) {
			e.kind = k.kind
			break
		}
	}
	if len(findings) > 0 {
		e.cause = &tko.InvalidPackageError{Findings: findings}
	}
	if st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max") {
		e.kind = tko.ErrInvalid
		e.text = "the package is too large: " + strings.TrimPrefix(st.Message(), "grpc: ")
	}
	if e.kind == nil {
		e.text = fmt.Sprintf("%s (%s)", st.Message(), st.Code())
	}
	return e
}

func details(st *status.Status) (reason string, findings []tko.Finding) {
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				reason = d.GetReason()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				findings = append(findings, finding(v.GetField(), v.GetDescription()))
			}
		}
	}
	return reason, findings
}

// finding reads what violations wrote. A field of another form is a path.
func finding(field, reason string) tko.Finding {
	fallback := tko.Finding{Path: field, Reason: reason}
	apiVersion, rest, ok := strings.Cut(field, " ")
	if !ok {
		return fallback
	}
	quote := strings.Index(rest, ` "`)
	if quote < 0 {
		return fallback
	}
	kind, rest := rest[:quote], rest[quote+1:]
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return fallback
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return fallback
	}
	return tko.Finding{
		Resource: krm.Identity{GVK: krm.ParseGVK(apiVersion, kind), Name: name},
		Path:     strings.TrimPrefix(strings.TrimPrefix(rest, quoted), ": "),
		Reason:   reason,
	}
}

// A remoteError is an error that a server answered.
type remoteError struct {
	status *status.Status
	kind   error // or nil
	text   string
	cause  error // *tko.InvalidPackageError, or nil
	said   bool
}

// Message says that an error is what a server of ours answered, and not what gRPC
// says for want of an answer.
func Message(err error) bool {
	e, ok := errors.AsType[*remoteError](err)
	return ok && e.said
}

func (e *remoteError) Error() string              { return e.text }
func (e *remoteError) Is(target error) bool       { return e.kind != nil && target == e.kind }
func (e *remoteError) Unwrap() error              { return e.cause }
func (e *remoteError) GRPCStatus() *status.Status { return e.status }
