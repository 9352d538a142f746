package osm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	parallel     = 8    // requests at once
	maxQuery     = 3500 // bytes of a query: proxies refuse longer ones
	maxRecreated = 3
	maxHistory   = 5
	saveTimeout  = 30 * time.Second // of a save, also when the process stops
	maxPoll      = time.Minute
)

// A run is one call of Apply, Follow or Plan.
type run struct {
	*Reconciler
	situation
	local    local
	problems []Problem
	blocked  map[string]string // origins of packages that aren't ready, by "vnf/ID"
	log      *slog.Logger

	ledger  *ledger
	lookups *lookups

	mu       sync.Mutex
	changes  []Change
	statuses map[string]Status
	packages map[string]Status
	removed  []string
	ended    []Ended
	warnings []Problem
	warned   map[string]bool // keys of warnings
	approval *Approval
	again    time.Duration
	soaking  time.Duration // left of the soak of a wave; 0 if none soaks

	listed        time.Time     // when all instances were listed; zero if it isn't known
	packagesLater time.Duration // until refused packages are sent again; 0 if there are none
}

func newRun(r *Reconciler, d Desired, s State, p Policy) *run {
	p.Poll = cmp.Or(p.Poll, 5*time.Second)
	p.Retry = cmp.Or(p.Retry, time.Minute)
	p.Settle = cmp.Or(p.Settle, 10*time.Second)
	p.InFlight = cmp.Or(p.InFlight, 64)
	p.Broken = cmp.Or(p.Broken, BrokenKeep)
	w := &run{
		Reconciler: r, situation: situation{policy: p, desired: d, wanted: map[string]wanted{}, refused: map[string]error{}, target: r.Client.Target()},
		blocked: map[string]string{}, warned: map[string]bool{}, log: r.Log,
		ledger: newLedger(s, r.Keep), statuses: map[string]Status{}, packages: map[string]Status{},
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.lookups = &lookups{run: w, nsds: map[string]nbi.PackageRecord{}, vnfds: map[string]nbi.Descriptor{}, vims: map[string]string{}, noVIM: map[string]error{}}
	w.local, w.problems = d.read()
	for _, i := range d.Instances {
		w.wanted[i.Name] = want(i, w.local)
	}
	for _, p := range w.problems {
		if p.What == WhatInstance {
			w.refused[p.Name] = p.Err
		}
	}
	return w
}

// apply makes passes until nothing is in flight, or the policy's Wait is over. The
// first pass reconciles only these instances, unless only is nil.
func (w *run) apply(ctx context.Context, only map[string]bool) error {
	deadline := time.Now().Add(w.policy.Wait)
	for {
		if err := w.pass(ctx, only); err != nil {
			return err
		}
		only = w.unsettled()
		wait := w.pause()
		if len(only) == 0 || !time.Now().Add(wait).Before(deadline) {
			if len(only) > 0 {
				w.soon(wait)
			}
			return nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// unsettled returns the instances with an operation in flight, or waiting for one.
func (w *run) unsettled() map[string]bool {
	only := map[string]bool{}
	for name, s := range w.statuses {
		if s.Phase == PhaseProgressing || s.Phase == PhaseRemoving {
			only[name] = true
		}
	}
	return only
}

// pause returns the time until the next pass. It grows with the duration of the
// operations in flight.
func (w *run) pause() time.Duration {
	wait := maxPoll
	for _, st := range w.ledger.state().Instances {
		switch {
		case st.Pending != nil:
			wait = min(wait, max(w.policy.Poll, time.Since(st.Pending.Since)/20))
		case st.Creating != nil:
			wait = min(wait, w.policy.Settle)
		default:
		}
	}
	if wait == maxPoll {
		wait = w.policy.Poll
		if w.soaking > 0 {
			wait = min(w.soaking, maxPoll)
		}
	}
	return wait
}

// soon asks for a call of Apply after this time; for none if it is 0.
func (w *run) soon(d time.Duration) {
	if d > 0 && (w.again == 0 || d < w.again) {
		w.again = d
	}
}

// pass observes, decides and acts once.
func (w *run) pass(ctx context.Context, only map[string]bool) error {
	var refused error // packages can't be read: operations are followed nevertheless
	if only == nil {
		refused = w.ensurePackages(ctx)
		if fatal(refused) {
			w.fillStatuses("it was not reconciled")
			return refused
		}
	}
	if err := w.observe(ctx, only); err != nil {
		w.fillStatuses("it was not reconciled")
		return errors.Join(refused, err)
	}
	if err := w.concludeOperations(ctx); err != nil || refused != nil {
		w.fillStatuses("it waits for the packages")
		return errors.Join(refused, err)
	}
	w.again = 0
	if err := w.holdBack(ctx); err != nil {
		w.fillStatuses("it was not reconciled")
		return err
	}
	decisions := w.decide(w.ledger.state(), only, time.Now())
	w.warnOfCharts()
	if err := w.approve(ctx, decisions); err != nil {
		return err
	}
	if err := w.pace(ctx, decisions, only == nil); err != nil {
		return err
	}
	if err := w.act(ctx, decisions); err != nil {
		return err
	}
	if err := w.prunePackages(ctx); err != nil {
		return err
	}
	w.soon(w.packagesLater)
	return w.ledger.setTarget(ctx, w.target, w.seen.foreign)
}

// fillStatuses sets the status of the instances that have none yet, with why as the
// message.
func (w *run) fillStatuses(why string) {
	for name := range w.ledger.state().Instances {
		if _, ok := w.statuses[name]; !ok {
			w.status(name, PhaseProgressing, why)
		}
	}
	for name := range w.wanted {
		if err := w.refused[name]; err != nil {
			w.status(name, PhaseStalled, err.Error())
		} else if _, ok := w.statuses[name]; !ok {
			w.status(name, PhaseProgressing, why)
		}
	}
}

// status sets the status of an instance.
func (w *run) status(name, phase, message string) {
	s := Status{Phase: phase, Message: message}
	if v, ok := w.wanted[name]; ok {
		s.Source = v.instance.Source
	}
	if st := w.ledger.instance(name); st != nil {
		s.ID = st.ID
		if st.Pending != nil {
			s.Operation = st.Pending.Kind
		}
	}
	if rec, ok := w.seen.byID[s.ID]; ok {
		s.Broken = rec.Broken()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses[name] = s
}

// changing records a change, and returns a function that records its failure.
func (w *run) changing(c Change) (failed func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.changes)
	w.changes = append(w.changes, c)
	w.log.Info("osm changes", "action", c.Action, "what", c.What, "name", c.Name, "reason", c.Reason)
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changes[i].Err = err
	}
}

// warnOfCharts warns of charts without a version: OSM installs their newest version
// with each upgrade.
func (w *run) warnOfCharts() {
	for name, want := range w.wanted {
		st := w.ledger.instance(name)
		if st == nil || st.Pending != nil || w.refused[name] != nil {
			continue
		}
		rec, there := w.seen.byID[st.ID]
		if !there || !rec.Instantiated() || rec.Busy() || rec.Broken() {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(want.kdus)) {
			if !pinned(explicit(want.kdus[k], rec)) {
				w.warn(unpinned(want.instance, k))
			}
		}
	}
}

func unpinned(i Instance, kdu string) Problem {
	return Problem{WhatInstance, i.Name, i.Source, fmt.Errorf("the chart of %s has no version: OSM takes the newest one with each upgrade. Write kdu_model: repository/chart:version into its params", kdu)}
}

func (w *run) warn(p Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := p.Name + "\x00" + p.Err.Error(); !w.warned[k] {
		w.warned[k] = true
		w.warnings = append(w.warnings, p)
	}
}

func (w *run) report() Report {
	slices.Sort(w.removed)
	return Report{
		State: w.ledger.state(), Changes: w.changes, Packages: w.packages, Instances: w.statuses,
		Removed: w.removed, Ended: w.ended, Warnings: w.warnings, Approval: w.approval, Again: w.again, Listed: w.listed,
	}
}

// An observation has the records that OSM returned. It isn't changed while decisions are
// carried out, which read it concurrently.
type observation struct {
	byID     map[string]nbi.InstanceRecord
	byName   map[string][]nbi.InstanceRecord
	ops      map[string]nbi.OperationRecord // those of the state, by _id
	recorded string                         // target of the state
	byNSD    bool                           // recorded instances were listed by NSD, not by name
	foreign  bool                           // recorded instances are missing, and the state is of another OSM
}

// observe lists the operations in flight, and the instances; only these, if only is
// not nil.
func (w *run) observe(ctx context.Context, only map[string]bool) error {
	state := w.ledger.state()
	w.seen = observation{recorded: state.Target, byID: map[string]nbi.InstanceRecord{}, byName: map[string][]nbi.InstanceRecord{}, ops: map[string]nbi.OperationRecord{}}
	var known, unknown, ops []string
	nsds := map[string]bool{}
	for name, st := range state.Instances {
		if only != nil && !only[name] {
			continue
		}
		if st.ID != "" {
			known = append(known, name)
			nsds[st.NSD] = true
		} else {
			unknown = append(unknown, name)
		}
		if st.Pending != nil && st.Pending.ID != "" {
			ops = append(ops, st.Pending.ID)
		}
	}
	for name := range w.wanted {
		if _, ok := state.Instances[name]; !ok && w.refused[name] == nil && (only == nil || only[name]) {
			unknown = append(unknown, name)
		}
	}
	for _, q := range split("id", ops) { // first, so that the instances show the results of ended operations
		records, err := w.Client.Operations(ctx, q)
		if err != nil {
			return fmt.Errorf("listing the operations: %w", err)
		}
		for _, r := range records {
			w.seen.ops[r.ID] = r
		}
	}
	for _, q := range instanceQueries(known, unknown, slices.Collect(maps.Keys(nsds))) {
		w.seen.byNSD = w.seen.byNSD || q.Has("nsd-ref")
		records, err := w.Client.Instances(ctx, q)
		if err != nil {
			return fmt.Errorf("listing the instances: %w", err)
		}
		for _, r := range records {
			if _, twice := w.seen.byID[r.ID]; !twice {
				w.seen.byID[r.ID] = r
				w.seen.byName[r.Name] = append(w.seen.byName[r.Name], r)
			}
		}
	}
	if only == nil {
		w.listed = now()
	}
	if state.Target != "" && state.Target != w.target {
		w.seen.foreign = slices.ContainsFunc(known, func(name string) bool {
			_, ok := w.seen.byID[state.Instances[name].ID]
			return !ok
		})
	}
	return nil
}

// instanceQueries returns the filters of as few lists as necessary: by name if that
// is one short query, otherwise recorded instances by NSD. Other instances can be
// found only by name.
func instanceQueries(known, unknown, nsds []string) []url.Values {
	slices.Sort(known)
	slices.Sort(unknown)
	slices.Sort(nsds)
	if len(split("name", known)) > 1 && len(split("nsd-ref", nsds)) == 1 && !slices.Contains(nsds, "") {
		return append(split("nsd-ref", nsds), split("name", unknown)...)
	}
	return split("name", slices.Concat(known, unknown))
}

// split returns filters that select any of these values, each of bounded length.
func split(attribute string, values []string) []url.Values {
	var all []url.Values
	for len(values) > 0 {
		n, length := 0, 0
		for n < len(values) && (n == 0 || length < maxQuery) {
			length += len(url.QueryEscape(values[n])) + len("%2C")
			n++
		}
		all = append(all, url.Values{attribute: {strings.Join(values[:n], ",")}})
		values = values[n:]
	}
	return all
}

// lookups cache what OSM returned about descriptors and VIM accounts in a run.
type lookups struct {
	run   *run
	mu    sync.Mutex
	nsds  map[string]nbi.PackageRecord
	vnfds map[string]nbi.Descriptor
	vims  map[string]string
	noVIM map[string]error // of names without a VIM account
}

// nsd returns the record of an NSD. ErrNotFound if OSM has none of this id,
// ErrConflict if it has several.
func (l *lookups) nsd(ctx context.Context, id string) (nbi.PackageRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.nsds[id]; ok {
		return r, nil
	}
	if strings.Contains(id, ",") {
		return nbi.PackageRecord{}, tko.Errorf(tko.ErrInvalid, "the NSD's id %q has a comma", id)
	}
	found, err := l.run.Client.Packages(ctx, nbi.KindNS, url.Values{"id": {id}})
	found = slices.DeleteFunc(found, func(r nbi.PackageRecord) bool { return r.Descriptor.ID != id })
	switch {
	case err != nil:
		return nbi.PackageRecord{}, fmt.Errorf("looking for NSD %q: %w", id, err)
	case len(found) == 0:
		return nbi.PackageRecord{}, tko.Errorf(tko.ErrNotFound, "OSM has no NSD with the id %q: write the id of an NSD that is in OSM or in a package of the same source", id)
	case len(found) > 1:
		return nbi.PackageRecord{}, tko.Errorf(tko.ErrConflict, "OSM has %d NSDs with the id %q", len(found), id)
	}
	l.nsds[id] = found[0]
	return found[0], nil
}

// members returns the VNFDs of an NSD by id, desired ones before those in OSM.
func (l *lookups) members(ctx context.Context, nsd nbi.Descriptor) (map[string]nbi.Descriptor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]nbi.Descriptor{}
	var missing []string
	for _, id := range nsd.References() {
		if d, ok := l.run.local.vnfd(id); ok {
			all[id] = d
		} else if d, ok := l.vnfds[id]; ok {
			all[id] = d
		} else {
			missing = append(missing, id)
		}
	}
	for _, q := range split("id", missing) {
		found, err := l.run.Client.Packages(ctx, nbi.KindVNF, q)
		if err != nil {
			return nil, fmt.Errorf("looking for the VNFDs of NSD %q: %w", nsd.ID, err)
		}
		for _, r := range found {
			l.vnfds[r.Descriptor.ID] = r.Descriptor
			all[r.Descriptor.ID] = r.Descriptor
		}
	}
	return all, nil
}

// vim returns the _id of a VIM account. ErrNotFound if there is none of this name or
// _id, ErrConflict if there are several.
func (l *lookups) vim(ctx context.Context, name string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id, ok := l.vims[name]; ok {
		return id, nil
	}
	if err := l.noVIM[name]; err != nil {
		return "", err
	}
	var found []nbi.VIMRecord
	var err error
	for _, attribute := range []string{"name", "_id"} {
		found, err = l.run.Client.VIMs(ctx, url.Values{attribute: {name}})
		if err != nil && !errors.Is(err, tko.ErrNotFound) { // release 19 returns that for a filter that selects none
			return "", fmt.Errorf("looking for VIM account %q: %w", name, err)
		}
		found = slices.DeleteFunc(found, func(r nbi.VIMRecord) bool { return r.Name != name && r.ID != name }) // OSM treats a comma as an or
		if len(found) > 0 {
			break
		}
	}
	if len(found) > 1 {
		return "", tko.Errorf(tko.ErrConflict, "OSM has %d VIM accounts that are called %q in this project: write the _id of one of them", len(found), name)
	}
	if len(found) == 0 {
		all, err := l.run.Client.VIMs(ctx, nil)
		if err != nil {
			return "", fmt.Errorf("listing the VIM accounts: %w", err)
		}
		l.noVIM[name] = tko.Errorf(tko.ErrNotFound, "OSM has no VIM accounts that are called %q in this project, only %s: correct the name, or add the account to OSM", name, namesOf(all))
		return "", l.noVIM[name]
	}
	l.vims[name] = found[0].ID
	return found[0].ID, nil
}

// namesOf returns the first ten names of VIM accounts, and the number of the others,
// as a text.
func namesOf(all []nbi.VIMRecord) string {
	const most = 10
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	text := quoted(names[:min(most, len(names))])
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// fatal reports whether an error concerns all instances and packages: no response, a
// refused login, a failed save. An error response concerns only the object of its
// request.
func fatal(err error) bool {
	if _, response := errors.AsType[*nbi.Error](err); response && !errors.Is(err, errSave) {
		return false
	}
	return errors.Is(err, tko.ErrUnavailable) || errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrStopped) || errors.Is(err, errSave) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
