package spanner

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
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

// Holds returns none.
func (unsupported) Holds(ctx context.Context) ([]tko.Hold, error) { return nil, ctx.Err() }

func (unsupported) GetAt(context.Context, int64, record.Fields, ...record.Key) (_ []record.Record, err error) {
	err = lacks("the past")
	return
}

func (unsupported) Past(context.Context) (_ record.Moment, _ record.Moment, err error) {
	err = lacks("the past")
	return
}

func (unsupported) PositionAt(context.Context, time.Time) (_ int64, err error) {
	err = lacks("the past")
	return
}

func (unsupported) HistorySize(context.Context) (_ record.HistorySize, err error) {
	err = lacks("the past")
	return
}

func (unsupported) History(context.Context, record.HistoryQuery) (_ []tko.Change, err error) {
	err = lacks("the past")
	return
}

func (unsupported) Collect(context.Context, record.Retention) (_ record.Collected, err error) {
	err = lacks("retention")
	return
}

func (unsupported) Backup(context.Context, io.Writer, string) error { return lacks("backups") }

func (unsupported) ReleaseHolds(context.Context, []tko.Hold, string) error { return lacks("backups") }
