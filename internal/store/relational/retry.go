package relational

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Patience is how long a call waits for a database that is away, or that keeps
// ending its transactions, before it fails.
const Patience = 30 * time.Second

// The pauses between attempts.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

// An AwayError is what callers are told of a database that is away, or too
// slow: the cause is for the log. It is a tko.ErrUnavailable.
type AwayError struct {
	Text  string
	Cause error
}

func (e *AwayError) Error() string { return e.Text }
func (e *AwayError) Unwrap() error { return e.Cause }

// Is makes it an ErrUnavailable.
func (e *AwayError) Is(target error) bool { return target == tko.ErrUnavailable }

// retry runs a transaction again as long as that may help, and as the caller
// waits.
func (s *Store) retry(ctx context.Context, run func() error) error {
	return s.retryUntil(ctx, time.Now().Add(Patience), run)
}

// retryUntil is retry with a time after which nothing is begun again.
func (s *Store) retryUntil(ctx context.Context, limit time.Time, run func() error) error {
	deadline, hasDeadline := ctx.Deadline()
	pause := minPause
	for {
		began := time.Now()
		err := run()
		took := time.Since(began)
		unknown := (*UnknownOutcomeError)(nil)
		if !errors.As(err, &unknown) && (err == nil || errors.Is(err, tko.ErrUnavailable) || !s.db.Transient(err)) {
			return err
		}
		wait := pause/2 + rand.N(pause/2) //nolint:gosec // jitter is no secret
		// One that won't come to its end in time says so while the caller listens.
		late := hasDeadline && time.Until(deadline) <= wait+took
		if late || time.Until(limit) < wait || !sleep(ctx, wait) {
			return away(err)
		}
		pause = min(2*pause, maxPause)
	}
}

// away makes of an error of a database that doesn't come back one that callers
// can do something about.
func away(err error) error {
	if unknown := (*UnknownOutcomeError)(nil); errors.As(err, &unknown) {
		return &AwayError{"the connection to the database was lost during the change, and it is away: whether the change was made is not known, so look before you repeat it", err}
	}
	if errors.Is(err, tko.ErrUnavailable) {
		return err
	}
	return &AwayError{"the database is away or overloaded, nothing was changed: try again", err}
}

// stream lists, again as long as nothing came: what comes after that must be
// from the same snapshot, which is lost with the connection.
func (s *Store) stream(ctx context.Context, yield func(catalog.Record, error) bool, list func(func(catalog.Record, error) bool) error) error {
	came, last := false, ""
	return s.retry(ctx, func() error {
		err := list(func(r catalog.Record, err error) bool {
			came, last = true, r.ID
			return yield(r, err)
		})
		if err == nil || !came || !s.db.Transient(err) {
			return err
		}
		return &AwayError{fmt.Sprintf("the connection to the database was lost in the middle, and with it the snapshot: start again, or go on after %q", last), err}
	})
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, wait time.Duration) (slept bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
