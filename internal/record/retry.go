package record

import (
	"context"
	"errors"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// Explain converts a store's error to an error for users.
func Explain(err error) error {
	if exceeded, ok := errors.AsType[*ExceededError](err); ok {
		return tko.Errorf(tko.ErrInvalid, "entities were added since they were counted, and at most %d may be changed: check the selection again: %w", exceeded.Limit, err)
	}
	missing, ok := errors.AsType[*MissingError](err)
	if !ok {
		return err
	}
	if missing.Deleting {
		return tko.Errorf(tko.ErrInvalid, "%s %q is being deleted: wait until it is deleted, or name another; if the deletion was interrupted, delete it again", missing.Key.Kind, missing.Key.ID)
	}
	if missing.Key.Kind == tko.KindDeployment {
		return tko.Errorf(tko.ErrInvalid, "parent deployment %q does not exist: create it first, or leave the parent out", missing.Key.ID)
	}
	return tko.Errorf(tko.ErrInvalid, "%s %q does not exist: register it first, or name another", missing.Key.Kind, missing.Key.ID)
}

// IsStale reports whether a write was refused because what it was derived from has changed.
func IsStale(err error) bool {
	_, ok := errors.AsType[*StaleError](err)
	return ok
}

// MaxAttempts is the maximum number of times that a change is derived because
// its record has changed.
const MaxAttempts = 12

// maxPause is the longest pause before a change is derived again.
const maxPause = 2 * time.Second

// A finalError ends [retry], whatever its kind is.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

// Final returns an error that ends [Retry], which returns err.
func Final(err error) error { return &finalError{err} }

// Retry calls f until the result is not a conflict, or is a final error. With
// each conflict, another writer has succeeded. Pauses grow with the time that an
// attempt takes: many writers of one entity on a busy machine would otherwise all
// start again while one of them commits, so that each attempt serves only one.
func Retry(ctx context.Context, f func() error) error {
	var err error
	for attempt := range MaxAttempts {
		began := time.Now()
		err = f()
		if end, ok := errors.AsType[*finalError](err); ok {
			return end.err
		}
		if !errors.Is(err, tko.ErrConflict) {
			return err
		}
		limit := min(max(time.Millisecond<<min(attempt, 6), time.Duration(attempt)*time.Since(began)), maxPause)
		if pause.For(ctx, pause.Between(0, limit)) != nil {
			return ctx.Err()
		}
	}
	return err
}
