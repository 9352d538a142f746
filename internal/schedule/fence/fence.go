// Package fence keeps targets from beginning with further objects of a site that a user has
// stopped. The meta-scheduler puts a fence into the context of a reconciliation; targets call
// [Check] before each object that they change.
package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Age is the maximum age of what a target knows of stops when it begins with an object.
const Age = 250 * time.Millisecond

// An Error is why nothing further may begin: an [tko.ErrStopped], or the error of the question
// whether the site is stopped. It concerns the whole reconciliation.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// NewError makes an Error of one that another process returned; nil for nil.
func NewError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Is reports whether err, or an error that it wraps, is an Error.
func Is(err error) bool {
	_, ok := errors.AsType[*Error](err)
	return ok
}

type key struct{}

// With returns a context in which Check calls check.
func With(ctx context.Context, check func(context.Context) error) context.Context {
	return context.WithValue(ctx, key{}, check)
}

// Check returns an [*Error] if nothing further may begin; nil in a context without a fence.
func Check(ctx context.Context) error {
	check, ok := ctx.Value(key{}).(func(context.Context) error)
	if !ok {
		return nil
	}
	return check(ctx)
}

// A Fence asks whether a site is stopped, at most once within [Age]. It is safe for concurrent
// use.
type Fence struct {
	ask    func(context.Context) (tko.SiteStop, error)
	site   tko.SiteID
	before tko.SiteStop

	lock  chan struct{}
	asked time.Time
	err   error
}

// New makes the fence of a reconciliation. What before holds, as of the time asked, is held
// already: only more closes the fence.
func New(site tko.SiteID, before tko.SiteStop, asked time.Time, ask func(context.Context) (tko.SiteStop, error)) *Fence {
	return &Fence{ask: ask, site: site, before: before, asked: asked, lock: make(chan struct{}, 1)}
}

// Check returns an [*Error] if more of the site is stopped than before, from then on always.
func (f *Fence) Check(ctx context.Context) error {
	select {
	case f.lock <- struct{}{}:
		defer func() { <-f.lock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if f.err != nil || time.Since(f.asked) < Age {
		return f.err
	}
	asked := time.Now() // what is stopped later isn't in the response
	now, err := f.ask(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Error{fmt.Errorf("asking whether site %q is stopped: %w", f.site, err)}
	}
	f.asked = asked
	if !now.Within(f.before) {
		f.err = &Error{tko.Errorf(tko.ErrStopped, "nothing further is begun at site %q: %s", f.site, now.Reason)}
	}
	return f.err
}
