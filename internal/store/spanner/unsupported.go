package spanner

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
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
// one. The few that return no error are true: the store has no rules of access and holds,
// because it can't get any.
type unsupported struct{}

// AccessVersion returns 0: there are no rules.
func (unsupported) AccessVersion(ctx context.Context) (int64, error) { return 0, ctx.Err() }

// Access returns no rules.
func (unsupported) Access(ctx context.Context) (int64, []record.AccessRule, error) {
	return 0, nil, ctx.Err()
}

// Tally returns no numbers.
func (unsupported) Tally(ctx context.Context) (record.Tally, bool, error) {
	return record.Tally{}, false, ctx.Err()
}

// Fence returns the epoch 0: the store is never restored, and can't be promoted.
func (unsupported) Fence(ctx context.Context) (tko.Fence, error) { return tko.Fence{}, ctx.Err() }

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

func (unsupported) ChangeAccess(context.Context, int64, []record.AccessRule, []record.AccessRule, ...audit.Record) (_ int64, err error) {
	err = lacks("rules of access")
	return
}

func (unsupported) Audit(context.Context, ...audit.Record) error { return lacks("the audit log") }

func (unsupported) Audited(context.Context, int64, int) (_ []audit.Stored, _ audit.Head, _ audit.Head, err error) {
	err = lacks("the audit log")
	return
}

func (unsupported) AuditedSince(context.Context, time.Time) (_ int64, err error) {
	err = lacks("the audit log")
	return
}

func (unsupported) AuditSink(context.Context, string) (_ int64, err error) {
	err = lacks("the audit log")
	return
}

func (unsupported) SaveAuditSink(context.Context, string, int64) error { return lacks("the audit log") }

func (unsupported) TrimAudit(context.Context, time.Time, int) (_ int, err error) {
	err = lacks("the audit log")
	return
}

func (unsupported) HoldNotifier(context.Context, string, time.Duration) (_ bool, err error) {
	err = lacks("subscriptions")
	return
}

func (unsupported) Subscriptions(context.Context) (_ []record.SubscriptionState, err error) {
	err = lacks("subscriptions")
	return
}

func (unsupported) SaveSubscription(context.Context, string, record.SubscriptionState) error {
	return lacks("subscriptions")
}

func (unsupported) Reached(context.Context, string, time.Duration, int) (_ []record.Reached, err error) {
	err = lacks("counts of changes by their cause")
	return
}

func (unsupported) RolloutStates(context.Context, ...string) (_ []record.RolloutState, _ int64, _ time.Time, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) RolloutRows(context.Context, string, int64, string, int) (_ []record.RolloutRow, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) RolloutPlan(context.Context, string, int64) (_ []byte, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) ReservedOrigins(context.Context, tko.DeploymentID) (_ map[string]tko.RolloutID, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) WriteRolloutPlan(context.Context, string, int64, []record.RolloutRow, []byte) error {
	return lacks("rollouts")
}

func (unsupported) RolloutView(context.Context, string, record.RowsAt) (_ record.RolloutView, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) RolloutCommandView(context.Context, string, record.RowFilter) (_ record.RolloutView, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) ApartFlights(context.Context) (_ []execute.Entry, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) RolloutSummary(context.Context, string, int) (_ record.RolloutSummary, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) RolloutEvidence(context.Context, string, int64, int) (_ []tko.RolloutEvidence, err error) {
	err = lacks("rollouts")
	return
}

func (unsupported) Collect(context.Context, record.Retention) (_ record.Collected, err error) {
	err = lacks("retention")
	return
}

func (unsupported) Backup(context.Context, io.Writer, string) error { return lacks("backups") }

func (unsupported) ReleaseHolds(context.Context, []tko.Hold, string) error { return lacks("backups") }
