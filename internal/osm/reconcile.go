package osm

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"
)

// A Reconciler makes an OSM hold what is desired. One may be used for one
// source at a time.
type Reconciler struct {
	Client *Client
	// Keep keeps the state, before and after each step; an error ends the call.
	// Steps of several instances share a call. It must not hold on to the state
	// after it returned. What changed names instances ("instance/NAME") and
	// packages ("vnf/ID"), for those who keep them apart.
	Keep func(ctx context.Context, s State, changed []string) error
	Log  *slog.Logger // nowhere if nil
}

// Policy is what may be done. The zero value is careful: nothing is removed.
type Policy struct {
	// Prune removes what was made for the source and it doesn't want any more.
	Prune bool
	// Budget is how many instances may be removed or made anew without being
	// asked for: more of them wait for Approve.
	Budget Budget
	// Approve is the key of the removals that somebody approved: that of
	// [Report.Approval].
	Approve string
	// Broken says what to do with broken instances: keep them, if empty.
	Broken Broken
	// Replace makes instances anew whose NSD or VIM account changed. Otherwise
	// that is refused, as OSM can't change them.
	Replace bool
	// NoReset is for servers of releases that don't know kdu_reset_values: values
	// that left are not removed there, with a warning.
	NoReset bool
	// Wait is how long operations are followed before Apply returns: it doesn't
	// wait if 0.
	Wait time.Duration
	// Poll is how often operations are looked at; 5 s if 0.
	Poll time.Duration
	// Retry is how soon what failed is tried again, doubled each time, up to 64
	// times that; 1 min if 0.
	Retry time.Duration
	// Settle is how long it may take until what a process that died has asked
	// for shows up; 10 s if 0.
	Settle time.Duration
	// InFlight is how many instances may be in an operation at once; 64 if 0.
	InFlight int
}

// A Budget limits removals. Either limit may be exceeded, but not both. The
// zero value allows none.
type Budget struct {
	Instances int
	Percent   int // of those that there are; 100 is no limit
}

// DefaultBudget is one that doesn't get in the way, and stops what can't be meant.
var DefaultBudget = Budget{Instances: 10, Percent: 20}

func (b Budget) over(n, total int) bool { return n > b.Instances && n*100 > b.Percent*total }

// What is done about a package or an instance.
const (
	ActionCreate   = "create"
	ActionAdopt    = "adopt" // it is there already, and ours from now on
	ActionUpdate   = "update"
	ActionUpgrade  = "upgrade"
	ActionRecreate = "recreate"
	ActionDelete   = "delete"
)

// A Change is something that is to be done, or was.
type Change struct {
	Action string
	What   string   // "vnf", "ns" or "instance"
	Name   string   // the descriptor's id, or the instance's name
	Source string   // where that is from, if it is desired
	Reason string   // why
	Paths  []string // of values that change: "member/KDU: replicaCount"
	Err    error    // why it could not be made, or begun
}

// A Plan is what Apply would do, in its order.
type Plan struct {
	Changes []Change
	// Refused is what can't be done.
	Refused []Problem
	// Warnings are what is done and may not be what was meant.
	Warnings []Problem
	// Approval is what Apply would ask for.
	Approval *Approval
}

// A Problem is about one package or instance.
type Problem struct {
	What, Name, Source string
	Err                error
}

// Join makes one error of problems; nil of none.
func Join(problems []Problem) error {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = p.Err
	}
	return errors.Join(all...)
}

// An Approval is what is needed for removals beyond the budget.
type Approval struct {
	Key       string   // to be given as Policy.Approve
	Instances []string // that would be removed or made anew, sorted
}

// The phases of packages and instances.
const (
	PhaseReady       = "Ready"       // it is as it should be
	PhaseProgressing = "Progressing" // an operation is in flight, or waits for another
	PhaseFailed      = "Failed"      // it is tried again
	PhaseStalled     = "Stalled"     // a change of what is desired, or of OSM, helps
	PhaseRemoving    = "Removing"    // it is on its way out
	PhaseKept        = "Kept"        // nobody wants it, and it isn't removed: see the message
)

// A Status is how one package or instance is.
type Status struct {
	Phase     string
	Message   string // empty if it is ready
	Source    string // where it is from, if it is desired
	ID        string // OSM's
	Broken    bool   // an instance that OSM calls broken
	Operation string // that is in flight: Instantiate, Upgrade or Terminate
}

// A Report is what came of an Apply.
type Report struct {
	State     State             // what was kept last
	Changes   []Change          // that were begun, or tried, in order
	Packages  map[string]Status // by "vnf/ID" and "ns/ID"
	Instances map[string]Status // by name
	Removed   []string          // instances that are gone since, sorted
	Ended     []Ended           // operations that ended since, in order
	Warnings  []Problem
	Approval  *Approval // that is waited for
	// Again is when to call again though nothing changed, for operations in flight
	// and for what is tried again; never if 0.
	Again time.Duration
}

// Ended is an operation that ended.
type Ended struct {
	Name string // of the instance
	OperationState
	Failure string // what OSM says is wrong; empty if nothing is
}

// Settled says whether nothing is in flight and everything is as it should be.
func (r Report) Settled() bool {
	for _, all := range []map[string]Status{r.Packages, r.Instances} {
		for _, s := range all {
			if s.Phase != PhaseReady && s.Phase != PhaseKept {
				return false
			}
		}
	}
	return r.Approval == nil
}

// Following reports whether all that isn't as it should be is under way: see
// [Reconciler.Follow].
func (r Report) Following() bool {
	if r.Approval != nil {
		return false
	}
	for _, s := range r.Packages {
		if s.Phase != PhaseReady && s.Phase != PhaseKept {
			return false
		}
	}
	some := false
	for _, s := range r.Instances {
		switch s.Phase {
		case PhaseReady, PhaseKept:
		case PhaseProgressing, PhaseRemoving:
			some = true
		default:
			return false
		}
	}
	return some
}

// Plan says what Apply would do, without changing anything, in OSM or here.
func (r *Reconciler) Plan(ctx context.Context, d Desired, s State, p Policy) (Plan, error) {
	w := newRun(r, d, s, p)
	var plan Plan
	err := w.plan(ctx, &plan)
	return plan, err
}

// Apply does what is needed so that OSM holds what is desired, and follows the
// operations that were begun, for as long as the policy says. What is wrong
// with one instance is in the report, and doesn't stop the others. A package
// that is refused is in the report, too: only what needs it waits, and stays as
// it is. An error is what concerns all: a server that doesn't respond, say. The
// report counts also if there is an error.
// [tko.ErrInvalid] says that what is desired has to change. Doing it again
// changes nothing.
//
// If nothing is to be done, that costs one request: a list of instances.
func (r *Reconciler) Apply(ctx context.Context, d Desired, s State, p Policy) (Report, error) {
	w := newRun(r, d, s, p)
	err := w.apply(ctx, nil)
	return w.report(), err
}

// Follow goes on with what was under way after a call for the same, whose report
// it was: see [Report.Following]. It looks only at the instances that aren't as
// they should be, so that it costs no list of all of them.
func (r *Reconciler) Follow(ctx context.Context, d Desired, s State, p Policy, last Report) (Report, error) {
	w := newRun(r, d, s, p)
	maps.Copy(w.packages, last.Packages)
	maps.Copy(w.statuses, last.Instances)
	for _, p := range last.Warnings {
		w.warn(p)
	}
	err := w.apply(ctx, w.unsettled())
	return w.report(), err
}
