package rights

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A Watcher is what the caller of a watch may see. It is for transports that filter
// events themselves.
type Watcher struct {
	authorizer *Authorizer
	caller     *Caller
	checked    time.Time // when the rights were compared last
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

// WatcherOf returns what a caller may see.
func (s *Authorizer) WatcherOf(c *Caller) *Watcher {
	return &Watcher{authorizer: s, caller: c, checked: time.Now()}
}

// Caller returns the caller.
func (w *Watcher) Caller() *Caller { return w.caller }

// Key returns a text that is equal as long as the caller sees the same.
func (w *Watcher) Key() string { return w.caller.View().Key() }

// Sees reports whether the caller may read a record. It doesn't see a record that
// doesn't exist.
func (w *Watcher) Sees(r record.Record) bool { return w.caller.Sees(r) }

// All reports whether the caller may read everything.
func (w *Watcher) All() bool { return w.caller.View().IsAll() }

// Check returns ErrDenied if the rights of the caller have changed since the watch
// began, or if its credentials have expired. Call it at intervals.
func (w *Watcher) Check(ctx context.Context) error {
	if w.authorizer.settings.Access == Off {
		return nil
	}
	c, err := w.authorizer.Caller(withCaller(ctx, nil))
	if err != nil {
		return err
	}
	if w.authorizer.settings.Access == Enforce && !c.Grant.Same(w.caller.Grant) {
		return tko.Errorf(tko.ErrDenied, "the rights of %q have changed: list again, and watch from there", c.Identity.Subject)
	}
	return nil
}

// Still is Check, at most once in an interval of rulesAge.
func (w *Watcher) Still(ctx context.Context) error {
	if w.authorizer.settings.Access == Off {
		return nil
	}
	now := time.Now()
	if now.Sub(w.checked) < Age {
		return nil
	}
	w.checked = now
	return w.Check(ctx)
}

// Interval returns a channel that ticks when rights must be compared again.
func (w *Watcher) Interval() (ticks <-chan time.Time, stop func()) {
	if w.authorizer.settings.Access == Off {
		return nil, func() {}
	}
	ticker := time.NewTicker(Age)
	return ticker.C, ticker.Stop
}

// Each calls visit with the records of a list until it returns false or an error, as long as
// the rights of the caller stay the same.
func (s *Authorizer) Each(ctx context.Context, w *Watcher, query record.Query, visit func(record.Record) (more bool, err error)) error {
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return s.reader.ListFault(ctx, query, err)
		}
		if err := w.Still(ctx); err != nil {
			return err
		}
		if more, err := visit(r); err != nil || !more {
			return err
		}
	}
	return nil
}
