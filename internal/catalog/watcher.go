package catalog

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A Watcher is what the caller of a watch may see. It is for transports that filter
// events themselves.
type Watcher struct {
	rights  *rights
	caller  *caller
	checked time.Time // when the rights were compared last
}

// Rights are what the caller of a watch may see: a [Watcher], or that of another
// process.
type Rights interface {
	// Sees reports whether the caller may read a record.
	Sees(r record.Record) bool
	// All reports whether the caller may read everything.
	All() bool
	// Interval returns a channel that ticks when Still must be called.
	Interval() (ticks <-chan time.Time, stop func())
	// Still returns ErrDenied if the rights have changed since the watch began.
	Still(ctx context.Context) error
}

// Key returns a text that is equal as long as the caller sees the same.
func (w *Watcher) Key() string { return w.caller.view().Key() }

// Sees reports whether the caller may read a record. It doesn't see a record that
// doesn't exist.
func (w *Watcher) Sees(r record.Record) bool { return w.caller.sees(r) }

// All reports whether the caller may read everything.
func (w *Watcher) All() bool { return w.caller.view().IsAll() }

// Check returns ErrDenied if the rights of the caller have changed since the watch
// began, or if its credentials have expired. Call it at intervals.
func (w *Watcher) Check(ctx context.Context) error {
	if w.rights.options.Access == AccessOff {
		return nil
	}
	c, err := w.rights.caller(context.WithValue(ctx, callerKey{}, (*caller)(nil)))
	if err != nil {
		return err
	}
	if w.rights.options.Access == AccessEnforce && !c.grant.Same(w.caller.grant) {
		return tko.Errorf(tko.ErrDenied, "the rights of %q have changed: list again, and watch from there", c.identity.Subject)
	}
	return nil
}

// Still is Check, at most once in an interval of rulesAge.
func (w *Watcher) Still(ctx context.Context) error {
	if w.rights.options.Access == AccessOff {
		return nil
	}
	now := time.Now()
	if now.Sub(w.checked) < rulesAge {
		return nil
	}
	w.checked = now
	return w.Check(ctx)
}

// Interval returns a channel that ticks when rights must be compared again.
func (w *Watcher) Interval() (ticks <-chan time.Time, stop func()) {
	if w.rights.options.Access == AccessOff {
		return nil, func() {}
	}
	ticker := time.NewTicker(rulesAge)
	return ticker.C, ticker.Stop
}
