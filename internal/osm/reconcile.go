package osm

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// A Reconciler reconciles an OSM with the desired state of a source. It must not be
// used concurrently.
type Reconciler struct {
	Client *nbi.Client
	// Keep saves the state, before and after each step; an error ends the
	// reconciliation. Concurrent steps share a call. It must not retain the state
	// after it returns. changed names the changed instances ("instance/NAME") and
	// packages ("vnf/ID"), for callers that save them separately.
	Keep func(ctx context.Context, s State, changed []string) error
	Log  *slog.Logger // discarded if nil
}

// A Policy limits a reconciliation. With the zero value, nothing is removed.
type Policy struct {
	// Prune removes instances and packages that were made for the source and are no
	// longer desired.
	Prune bool
	// Budget is the limit of instances that are removed or recreated without
	// approval.
	Budget prune.Budget
	// Approve is the key of the approved removals, from [Report.Approval].
	Approve string
	// Broken is the action for broken instances; BrokenKeep if empty.
	Broken Broken
	// Replace recreates instances whose NSD or VIM account changed. Otherwise such a
	// change is refused, as OSM can't change them.
	Replace bool
	// NoReset is for releases of OSM without kdu_reset_values: values that are no
	// longer desired stay there, with a warning.
	NoReset bool
	// Wait is the time for which Apply follows operations before it returns; none
	// if 0.
	Wait time.Duration
	// Poll is the interval between reads of the state of operations; 5 s if 0.
	Poll time.Duration
	// RetryNow tries failed steps again before their pause is over, because a user asks
	// for it; not those that failed just now.
	RetryNow bool
	// Retry is the pause before a failed step is tried again, doubled each time, up
	// to 64 times as long; 1 min if 0.
	Retry time.Duration
	// Settle is the time after which OSM must show the result of a request whose
	// response was not received; 10 s if 0.
	Settle time.Duration
	// InFlight is the limit of instances with an operation in flight; 64 if 0.
	InFlight int
	// List is the time for which a list of all instances counts for those that are as desired:
	// see [Reconciler.Update]; none if 0.
	List time.Duration
	// Pace, if not nil, has instances upgraded in waves.
	Pace *Pace
}

// The actions on packages and instances.
const (
	ActionCreate   = "create"
	ActionAdopt    = "adopt" // take over an existing one
	ActionUpdate   = "update"
	ActionUpgrade  = "upgrade"
	ActionRecreate = "recreate"
	ActionDelete   = "delete"
)

// A Change is a planned or tried change of a package or an instance.
type Change struct {
	Action string
	What   string // "vnf", "ns" or "instance"
	Name   string // the descriptor's id, or the instance's name
	Source string // origin, if it is desired
	Reason string
	Paths  []string // of values that change: "member/KDU: replicaCount"
	Err    error    // set if it could not be made or begun
}

// A Plan has the changes that Apply would make, in order.
type Plan struct {
	Changes []Change
	// Refused are changes that can't be made.
	Refused []Problem
	// Warnings are of changes that may not be intended.
	Warnings []Problem
	// Approval is the approval that Apply would need; nil if none.
	Approval *Approval
}

// A Problem is an error of one package or instance.
type Problem struct {
	What, Name, Source string
	Err                error
}

// Join joins the errors of problems; nil if there are none.
func Join(problems []Problem) error {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = p.Err
	}
	return errors.Join(all...)
}

// An Approval is a request to approve removals that exceed the budget.
type Approval struct {
	Key       string   // for Policy.Approve
	Instances []string // to be removed or recreated, sorted
	Wave      int      // number of the wave in which they are upgraded; 0: they are removed or recreated
}

// The phases of packages and instances.
const (
	PhaseReady       = "Ready"       // as desired
	PhaseProgressing = "Progressing" // an operation is in flight, or waits for another one
	PhaseFailed      = "Failed"      // a step failed and is tried again
	PhaseStalled     = "Stalled"     // the desired state, or OSM, must change
	PhaseRemoving    = "Removing"    // it is being removed
	PhaseKept        = "Kept"        // not desired, and not removed, for the reason in the message
)

// Unfinished are the phases of packages and instances that aren't as desired.
var Unfinished = []string{PhaseStalled, PhaseFailed, PhaseProgressing, PhaseRemoving}

// A Status is the status of one package or instance.
type Status struct {
	Phase     string
	Message   string // empty if it is ready
	Source    string // origin, if it is desired
	ID        string // OSM's
	Broken    bool   // OSM reports the instance as broken
	Operation string // in flight: Instantiate, Upgrade or Terminate
}

// A Report is the result of Apply.
type Report struct {
	State     State             // as it was last saved
	Changes   []Change          // begun or tried, in order
	Packages  map[string]Status // by "vnf/ID" and "ns/ID"
	Instances map[string]Status // by name
	Removed   []string          // instances whose removal ended, sorted
	Ended     []Ended           // operations that ended, in order
	Warnings  []Problem
	Approval  *Approval // needed to continue; nil if none
	// Listed is the time of the last list of all instances; zero if it isn't known.
	Listed time.Time
	// Again is the time until Apply must be called again if nothing changes, for
	// operations in flight and failed steps; 0 if it need not be.
	Again time.Duration
}

// Ended is an operation that ended.
type Ended struct {
	Name string // of the instance
	OperationState
	Failure string // OSM's message; empty if the operation succeeded
}

// done reports whether nothing is left to do.
func (s Status) done() bool { return s.Phase == PhaseReady || s.Phase == PhaseKept }

// Summary returns the report without the state and without what happened: what
// [Reconciler.Update] needs.
func (r Report) Summary() Report {
	r.State, r.Changes, r.Removed, r.Ended = State{}, nil, nil, nil
	return r
}

// Settled reports whether everything is as desired, and nothing is in flight.
func (r Report) Settled() bool {
	for _, all := range []map[string]Status{r.Packages, r.Instances} {
		for _, s := range all {
			if !s.done() {
				return false
			}
		}
	}
	return r.Approval == nil
}

// Status returns the status of a package or instance by its key: see [State]. known is
// false if the report has none.
func (r Report) Status(key string) (s Status, known bool) {
	if name, ok := InstanceOf(key); ok {
		s, known = r.Instances[name]
	} else {
		s, known = r.Packages[key]
	}
	return s, known
}

// An Item is a package or an instance of a report.
type Item struct {
	What string // "vnf", "ns" or "instance"
	Name string // the descriptor's id, or the instance's name
	Status
}

// String returns the key of a package, or the name of an instance.
func (i Item) String() string {
	if i.What == WhatInstance {
		return i.Name
	}
	return bundle.Key(nbi.Kind(i.What), i.Name)
}

// Items returns the packages and instances in these phases, or all: VNF packages, NS packages,
// instances, each by name.
func (r Report) Items(phases ...string) []Item {
	var items []Item
	add := func(what, name string, s Status) {
		if len(phases) == 0 || slices.Contains(phases, s.Phase) {
			items = append(items, Item{What: what, Name: name, Status: s})
		}
	}
	for key, s := range r.Packages {
		what, id, _ := strings.Cut(key, "/")
		add(what, id, s)
	}
	for name, s := range r.Instances {
		add(WhatInstance, name, s)
	}
	order := []string{string(nbi.KindVNF), string(nbi.KindNS), WhatInstance}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(slices.Index(order, a.What)-slices.Index(order, b.What), strings.Compare(a.Name, b.Name))
	})
	return items
}

// Following reports whether everything that isn't as desired is in flight: see
// [Reconciler.Follow].
func (r Report) Following() bool {
	if r.Approval != nil {
		return false
	}
	for _, s := range r.Packages {
		if !s.done() {
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

// Plan returns the changes that Apply would make. It changes nothing, neither in OSM
// nor in the state.
func (r *Reconciler) Plan(ctx context.Context, d Desired, s State, p Policy) (Plan, error) {
	w := newRun(r, d, s, p)
	var plan Plan
	err := w.plan(ctx, &plan)
	return plan, err
}

// Apply changes OSM to the desired state, and follows the operations that it begins
// for the time that the policy allows. A failure of one instance is in the report
// and doesn't stop the others. A refused package is in the report, too: only the
// packages and instances that need it wait, and stay unchanged. An error concerns
// the whole reconciliation, such as a server that doesn't respond. The report is
// valid also if there is an error. [tko.ErrInvalid] means that the desired state
// must change. Apply is idempotent.
//
// If everything is as desired, Apply makes one request: a list of instances.
func (r *Reconciler) Apply(ctx context.Context, d Desired, s State, p Policy) (Report, error) {
	w := newRun(r, d, s, p)
	err := w.apply(ctx, nil)
	return w.report(), err
}

// Update is Apply after a report of the same OSM and source that isn't older than the policy
// allows: it reads only the instances that the report doesn't have as desired, or that change,
// and not a list of all. It is Apply if that isn't enough, such as for removals, packages and
// waves, or if nothing is to be done.
func (r *Reconciler) Update(ctx context.Context, d Desired, s State, p Policy, last Report) (Report, error) {
	w := newRun(r, d, s, p)
	only := w.changed(last)
	if len(only) > 0 {
		last.Warnings = slices.DeleteFunc(slices.Clone(last.Warnings), func(p Problem) bool { return p.What == WhatInstance && only[p.Name] })
		w.continues(last)
	} else {
		only = nil
	}
	err := w.apply(ctx, only)
	return w.report(), err
}

// continues takes over what the last report has.
func (w *run) continues(last Report) {
	maps.Copy(w.packages, last.Packages)
	for name, s := range last.Instances {
		if want, ok := w.wanted[name]; ok {
			s.Source = want.instance.Source
		}
		w.statuses[name] = s
	}
	for _, p := range last.Warnings {
		w.warn(p)
	}
	w.listed = last.Listed
}

// changed returns the desired instances that aren't known to be as desired; nil if only a list of
// all instances shows what is to be done.
func (w *run) changed(last Report) map[string]bool {
	state := w.ledger.state()
	if w.policy.Pace != nil || last.Approval != nil || last.Listed.IsZero() || now().Sub(last.Listed) >= w.policy.List || state.Target != w.target || !w.samePackages(state, last) {
		return nil
	}
	for name := range state.Instances {
		if _, wanted := w.wanted[name]; !wanted {
			return nil // it is removed, within a budget of all
		}
	}
	only := map[string]bool{}
	for name, want := range w.wanted {
		st := state.Instances[name]
		switch {
		case w.refused[name] != nil:
			only[name] = true
		case st != nil && st.ID != "" && len(moves(want, st)) > 0:
			return nil // it may be recreated, within a budget of all
		case st == nil || st.ID == "" || st.Pending != nil || st.Creating != nil || st.Failed != nil || st.Removing || st.Digest != want.digest || last.Instances[name].Phase != PhaseReady:
			only[name] = true
		}
	}
	return only
}

// samePackages reports whether OSM has the desired packages, and no others of the source.
func (w *run) samePackages(state State, last Report) bool {
	if len(w.desired.Packages) != len(state.Packages) {
		return false
	}
	for _, p := range w.desired.Packages {
		key := p.Key()
		if have := state.Packages[key]; have.Failed != nil || have.Digest == "" || have.Digest != w.local.contents[key].Digest || last.Packages[key].Phase != PhaseReady {
			return false
		}
	}
	return true
}

// Follow continues after Apply returned the report last for the same desired state,
// if last.Following is true. It reads only the instances with operations in flight,
// not a list of all.
func (r *Reconciler) Follow(ctx context.Context, d Desired, s State, p Policy, last Report) (Report, error) {
	w := newRun(r, d, s, p)
	w.continues(last)
	err := w.apply(ctx, w.unsettled())
	return w.report(), err
}
