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
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// Domain is the domain of TKO's google.rpc.ErrorInfo details.
const Domain = "tko"

// ErrUnavailable is the kind of errors of a server, or of its database, that
// can't be reached.
var ErrUnavailable = tko.ErrUnavailable

// DefaultErrorSize is the maximum size of an error on the wire, in bytes,
// unless the client accepts more. Errors travel in HTTP/2 trailers, of which
// many clients accept at most 8 KiB: a larger error would not arrive.
const DefaultErrorSize = 6 << 10

// kinds maps error kinds to status codes. The reason distinguishes kinds with the
// same code; the first of them is the kind of a status without a reason.
var kinds = []struct {
	kind   error
	code   codes.Code
	reason string
}{
	{tko.ErrInvalid, codes.InvalidArgument, "INVALID"},
	{tko.ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{tko.ErrConflict, codes.Aborted, "CONFLICT"},
	{tko.ErrStopped, codes.FailedPrecondition, "STOPPED"}, // before ErrBusy, which it is, too: clients that don't know it don't repeat the request at once
	{tko.ErrBusy, codes.Aborted, "BUSY"},
	{tko.ErrDenied, codes.PermissionDenied, "DENIED"},
	{tko.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{tko.ErrGone, codes.OutOfRange, "GONE"},
	{context.Canceled, codes.Canceled, ""},
	{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
	{ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
}

// Status returns the status of an error for clients, of at most size bytes (see
// [DefaultErrorSize]). It is nil for errors of no kind: their text is not for
// clients.
func Status(err error, size int) *status.Status {
	i := kindOf(err)
	if i < 0 {
		return nil
	}
	kind := kinds[i]
	// The text travels twice: as the message, and in base64 in the details, where
	// each violation repeats a part of it.
	text := cut(printable.Once(err.Error()), size/4)
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

// kindOf returns the index of the outermost kind of an error, or -1: an error
// with a kind may wrap one of another kind.
func kindOf(err error) int {
	for i, k := range kinds {
		if err == k.kind { //nolint:errorlint // checks one layer at a time
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

// violations writes as many findings as fit into size bytes.
func violations(findings []tko.Finding, size int) *errdetails.BadRequest {
	m := &errdetails.BadRequest{}
	for _, f := range findings {
		field := f.Resource.String()
		if f.Path != "" {
			field += ": " + f.Path
		}
		size -= len(field) + len(f.Reason) + 8
		if size < 0 {
			break
		}
		m.FieldViolations = append(m.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field:       strings.ToValidUTF8(field, "\uFFFD"),
			Description: strings.ToValidUTF8(f.Reason, "\uFFFD"),
		})
	}
	return m
}

// cut truncates a text to size bytes in HTTP/2's encoding, in which characters
// other than printable ASCII take three bytes per byte.
func cut(text string, size int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	used := 0
	for i, c := range text {
		n := 1
		if c < ' ' || c > '~' || c == '%' {
			n = 3 * utf8.RuneLen(c)
		}
		used += n
		if used > size {
			return text[:i] + fmt.Sprintf(" ... (%d more characters)", utf8.RuneCountInString(text[i:]))
		}
	}
	return text
}

// Error is the inverse of [Status]: it returns an error with the same kind and
// text as on the server for the error of a call of tko.Data. nil stays nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	reason, findings := details(st)
	e := &remoteError{status: st, text: st.Message(), isOurs: reason != ""}
	for _, k := range kinds {
		if k.code == st.Code() && (reason == "" && k.kind != tko.ErrStopped || k.reason == "" || k.reason == reason) { //nolint:errorlint // of the table
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

// RequestOf returns the ID of the request that an error of [Error] ended; "" if it
// isn't known.
func RequestOf(err error) string {
	e, ok := errors.AsType[*remoteError](err)
	if !ok {
		return ""
	}
	for _, detail := range e.status.Details() {
		if info, ok := detail.(*errdetails.RequestInfo); ok {
			return info.GetRequestId()
		}
	}
	return ""
}

// A remoteError is an error that a server returned.
type remoteError struct {
	status *status.Status
	kind   error // or nil
	text   string
	cause  error // *tko.InvalidPackageError, or nil
	isOurs bool  // a TKO server made it, not gRPC
}

// IsServerError reports whether a TKO server made the text of an error. Otherwise
// gRPC did, without a response from the server.
func IsServerError(err error) bool {
	e, ok := errors.AsType[*remoteError](err)
	return ok && e.isOurs
}

func (e *remoteError) Error() string              { return e.text }
func (e *remoteError) Is(target error) bool       { return errors.Is(e.kind, target) }
func (e *remoteError) Unwrap() error              { return e.cause }
func (e *remoteError) GRPCStatus() *status.Status { return e.status }
