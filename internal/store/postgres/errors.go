package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The error codes of PostgreSQL and compatible databases.
const (
	codeFeature         = "0A000" // not supported
	codeUndefinedTable  = "42P01"
	codeDuplicateTable  = "42P07"
	codeDuplicateObject = "42710" // the row type of a table
	codeUnique          = "23505"
	codeOutcomeUnknown  = "40003"
	codeReadOnly        = "25006" // the server is no longer the primary
	codeStatementEnded  = "57014"
	codeLockTimeout     = "55P03"
	codeDiskFull        = "53100"
	severityConnection  = "FATAL"
	classFeature        = "0A"
	classNotUnderstood  = "42" // syntax errors, unknown functions and settings
	classInvalidRequest = "22" // values of settings
)

// transientCodes are codes, or prefixes of codes, of errors after which a retry may
// succeed.
var transientCodes = []string{
	"08",    // connections
	"40",    // serialization failures and deadlocks
	"53",    // resources: connections, memory, disk
	"57P",   // shutting down, starting up, crashed
	"55P03", // a lock was not available in time
	"25P03", // a transaction was idle for too long
	"25P04", // or took too long
	codeReadOnly,
}

// Transient returns true for lost connections, and for transactions that the database
// chose to end.
func (*database) Transient(err error) bool { return transient(err) }

// Full reports whether the disk of the database server is full.
func (*database) Full(err error) bool { return isCode(err, codeDiskFull) }

func transient(err error) bool {
	if err == nil {
		return false
	}
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.ContainsFunc(transientCodes, func(code string) bool { return strings.HasPrefix(failure.Code, code) })
	}
	if connect := (*pgconn.ConnectError)(nil); errors.As(err, &connect) {
		return true // connecting has its own time limit
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed")
}

// refused reports whether the database lacks a feature that a statement needs.
func refused(err error) bool {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || failure.SeverityUnlocalized == severityConnection {
		return false
	}
	return slices.ContainsFunc([]string{classFeature, classNotUnderstood, classInvalidRequest}, func(class string) bool {
		return strings.HasPrefix(failure.Code, class)
	})
}

// outcomeKnown reports whether a transaction certainly failed: the database reported
// that it failed, or never received it.
func outcomeKnown(err error) bool {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failure.SeverityUnlocalized != severityConnection && failure.Severity != severityConnection && failure.Code != codeOutcomeUnknown
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, errScan)
}

// isCode reports whether an error is one of the database with one of these codes.
func isCode(err error, codes ...string) bool {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, failure.Code)
}
