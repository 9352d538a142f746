package spanner

import (
	"context"
	"errors"
	"io"

	"github.com/tko-orchestrator/tko"
)

// An UnsupportedError reports a part of [record.Store] that this store lacks. It is an
// errors.ErrUnsupported.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string {
	return "the store on Spanner doesn't have " + e.What + " yet: use SQLite or PostgreSQL"
}

// Is reports true for errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

func lacks(what string) error { return &UnsupportedError{What: what} }

// An unsupported is the parts of [record.Store] that are refused. [Store] replaces its methods one by
// one. The few that return no error are true: the store holds nothing, because it can't get holds.
type unsupported struct{}

// Fence returns the epoch 0: the store is never restored, and can't be promoted.
func (unsupported) Fence(ctx context.Context) (tko.Fence, error) { return tko.Fence{}, ctx.Err() }

// Holds returns none.
func (unsupported) Holds(ctx context.Context) ([]tko.Hold, error) { return nil, ctx.Err() }

func (unsupported) Backup(context.Context, io.Writer, string) error { return lacks("backups") }

func (unsupported) ReleaseHolds(context.Context, []tko.Hold, string) error { return lacks("backups") }
