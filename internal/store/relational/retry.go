package relational

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
)

// MaxWait is the time after which a call fails if the database is unavailable or
// repeatedly ends its transactions.
const MaxWait = 30 * time.Second

// The pauses between attempts.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// An AwayError is a tko.ErrUnavailable for a database that is away or too slow. Text
// is for the caller, Cause for the log.
type AwayError struct {
	Text  string
	Cause error
}

func (e *AwayError) Error() string { return e.Text }
func (e *AwayError) Unwrap() error { return e.Cause }

// Is makes it an ErrUnavailable.
func (e *AwayError) Is(target error) bool { return target == tko.ErrUnavailable }

func outcomeUnknown(err error) bool {
	_, unknown := errors.AsType[*UnknownOutcomeError](err)
	return unknown
}

// retry runs a transaction again while that may help and the context lasts.
func (s *Store) retry(ctx context.Context, run func() error) error {
	return s.retryUntil(ctx, time.Now().Add(MaxWait), run)
}

// retryUntil is retry with a time after which no attempt begins.
func (s *Store) retryUntil(ctx context.Context, limit time.Time, run func() error) error {
	deadline, hasDeadline := ctx.Deadline()
	most := minPause
	var longest time.Duration // of the attempts
	for {
		began := time.Now()
		err := run()
		longest = max(longest, time.Since(began))
		s.failed(err)
		if !outcomeUnknown(err) && (err == nil || errors.Is(err, tko.ErrUnavailable) || !s.db.Transient(err)) {
			return err
		}
		wait := pause.Between(most/2, most)
		// An attempt that may not end in time isn't begun, so that the caller receives
		// the error before its deadline. On a busy machine, the next may take twice as long.
		late := hasDeadline && time.Until(deadline) <= wait+2*longest
		if late || time.Until(limit) < wait || pause.For(ctx, wait) != nil {
			return s.away(err)
		}
		most = min(2*most, maxPause)
	}
}

// away wraps the error of a database that stays unavailable in one with a remedy for
// the caller.
func (s *Store) away(err error) error {
	if s.base.Full(err) {
		return &AwayError{"the disk of the database is full, nothing was changed: free space on it, and try again", err}
	}
	if outcomeUnknown(err) {
		return &AwayError{"the connection to the database was lost during the change, and it is away: whether the change was made is not known, so read it before you repeat it", err}
	}
	if errors.Is(err, tko.ErrUnavailable) {
		return err
	}
	return &AwayError{"the database is away or overloaded, nothing was changed: try again", err}
}

// stream lists, and lists again as long as no row was given to the caller: later rows
// must be from the same snapshot, which is lost with the connection.
func (s *Store) stream(ctx context.Context, yield func(record.Record, error) bool, list func(func(record.Record, error) bool) error) error {
	came, last := false, ""
	return s.retry(ctx, func() error {
		err := list(func(r record.Record, err error) bool {
			came, last = true, r.ID
			return yield(r, err)
		})
		if err == nil || !came || !s.db.Transient(err) {
			return err
		}
		return &AwayError{fmt.Sprintf("the connection to the database was lost, and with it the snapshot of the list: start again, or continue after %q", last), err}
	})
}
