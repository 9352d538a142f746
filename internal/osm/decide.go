package osm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// A verb is the next step of an instance.
type verb int

const (
	nothing     verb = iota
	create           // create its record in OSM, and instantiate it
	adopt            // take over a record of its name, and decide again
	instantiate      // instantiate a record
	upgrade          // upgrade one KDU
	terminate        // terminate and remove it
	forget           // remove it from the state: OSM doesn't have it
)

// A decision is the next step of an instance, and its status until then.
type decision struct {
	name   string
	now    time.Time // of the decision
	verb   verb
	action string // for users; empty for an intermediate step
	reason string
	paths  []string
	record nbi.InstanceRecord
	kdu    string // "member/KDU" of an upgrade
	reset  bool   // of an upgrade: remove all other values
	again  bool   // of a removal: recreate it afterwards
	free   bool   // of a removal: outside the budget, as nothing runs

	phase   string
	message string
	later   time.Duration // until the next reconciliation; 0 if none is needed
}

// terminating takes the place of the digest in failures of removals.
const terminating = "terminate"

// A situation is what decisions depend on, apart from the recorded instances and the time.
type situation struct {
	policy  Policy
	desired Desired
	wanted  map[string]wanted // by name
	refused map[string]error  // invalid instances, by name
	waiting map[string]string // reasons of instances that need a package that isn't ready, by name
	seen    observation
	target  string // of the client
}

// decide returns the decisions for all instances, or only for these if only is not
// nil. It makes no requests and changes nothing.
func (s *situation) decide(state State, only map[string]bool, now time.Time) []decision {
	var all []decision
	done := map[string]bool{}
	for _, i := range s.desired.Instances {
		if done[i.Name] || only != nil && !only[i.Name] {
			continue
		}
		done[i.Name] = true
		if err := s.refused[i.Name]; err != nil {
			all = append(all, decision{name: i.Name, phase: PhaseStalled, message: err.Error()})
			continue
		}
		all = append(all, s.hold(s.decideOn(i.Name, state.Instances[i.Name], now)))
	}
	for _, name := range slices.Sorted(maps.Keys(state.Instances)) {
		if _, desired := s.wanted[name]; !desired && (only == nil || only[name]) {
			all = append(all, s.decideRemoval(name, state.Instances[name], now))
		}
	}
	return all
}

// decideOn returns the decision for a desired instance.
func (s *situation) decideOn(name string, st *InstanceState, now time.Time) decision {
	want := s.wanted[name]
	d := decision{name: name, now: now}
	if st == nil {
		st = &InstanceState{}
	}
	rec, there := s.seen.byID[st.ID]
	switch {
	case st.ID == "" || !there:
		return s.decideMissing(d, want, st)
	case st.Pending != nil:
		return inFlight(d, st)
	case rec.Terminating():
		return d.wait("another client terminates it")
	case rec.Busy():
		return d.wait(fmt.Sprintf("OSM is at work on it (%s)", rec.CurrentOperation))
	}
	d.record = rec
	moved := moves(want, st)
	switch {
	case len(moved) > 0 && (s.policy.Replace || !rec.Instantiated()):
		d.verb, d.action, d.reason, d.again, d.free = terminate, ActionRecreate, strings.Join(moved, ", "), true, !rec.Instantiated()
		return d.held(st, terminating, s.policy)
	case len(moved) > 0:
		return d.as(PhaseStalled, strings.Join(moved, ", ")+": OSM can't change that in an instance. Undo it, rename the instance, or let the policy replace instances")
	case !rec.Instantiated():
		d.verb, d.action, d.reason = instantiate, ActionCreate, "its record is there, and it was never instantiated"
		return d.held(st, want.digest, s.policy)
	case rec.Broken():
		return s.decideBroken(d, want, st)
	}
	for _, k := range slices.Sorted(maps.Keys(want.kdus)) {
		if have := st.KDUs[k]; !have.same(want.kdus[k].state) {
			d.verb, d.action, d.kdu, d.paths = upgrade, ActionUpgrade, k, have.changes(k, want.kdus[k].state)
			d.reason = "its values changed"
			if st.Adopted {
				d.reason = "it is not known to have these values"
			}
			return d.held(st, want.digest, s.policy)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want.kdus)) {
		have := st.KDUs[k]
		if _, shown := rec.Values(k); have.Shown && shown && !have.shownBy(rec, k) {
			d.verb, d.action, d.kdu, d.reset, d.reason = upgrade, ActionUpgrade, k, true, "another client changed its values in OSM"
			return d.held(st, want.digest, s.policy)
		}
	}
	return d.as(PhaseReady, "")
}

// hold returns d, or a decision to wait if the instance needs a package that isn't
// ready.
func (s *situation) hold(d decision) decision {
	why := s.waiting[d.name]
	if why == "" || d.verb == nothing {
		return d
	}
	return d.as(PhaseStalled, why)
}

// moves describes the changes that OSM can't make to an instance.
func moves(want wanted, st *InstanceState) []string {
	var all []string
	if st.NSD != want.instance.NSD {
		all = append(all, fmt.Sprintf("its NSD changed from %q to %q", st.NSD, want.instance.NSD))
	}
	if st.VIM != want.instance.VIM {
		all = append(all, fmt.Sprintf("its VIM account changed from %q to %q", st.VIM, want.instance.VIM))
	}
	return all
}

// decideMissing returns the decision for a desired instance that OSM isn't known to
// have.
func (s *situation) decideMissing(d decision, want wanted, st *InstanceState) decision {
	if st.ID != "" && s.seen.foreign {
		return d.as(PhaseStalled, fmt.Sprintf("it is known as %s in OSM %q, and not in %q: it isn't made there as long as that isn't cleared. Change the connection back, or begin with a new source",
			st.ID, s.seen.recorded, s.target))
	}
	matches := s.seen.byName[d.name]
	if st.ID != "" { // it was removed: others of its name are different instances
		d.reason = "it was removed from OSM"
	}
	switch {
	case len(matches) > 1:
		return d.as(PhaseStalled, fmt.Sprintf("OSM has %d instances of that name, and none is known to be it: remove all but one, or rename it", len(matches)))
	case len(matches) == 1 && matches[0].NSD != want.instance.NSD:
		return d.as(PhaseStalled, fmt.Sprintf("OSM has an instance of that name with the NSD %q, so it is another one: rename or remove one of them", matches[0].NSD))
	case len(matches) == 1 && matches[0].Terminating():
		return d.wait("an instance of that name is being terminated")
	case len(matches) == 1:
		d.verb, d.action, d.record = adopt, ActionAdopt, matches[0]
		d.reason = "OSM has an instance of that name and NSD"
		if st.Creating != nil {
			d.action = ""
		}
		return d
	}
	if st.Creating != nil {
		if left := st.Creating.Add(s.policy.Settle).Sub(d.now); left > 0 {
			d.later = left
			return d.wait("it was requested, and it isn't known whether OSM created it")
		}
	}
	d.verb, d.action = create, ActionCreate
	if d.reason == "" {
		d.reason = "it isn't there"
	}
	return d.held(st, want.digest, s.policy)
}

// decideBroken returns the decision for a desired instance that is broken.
func (s *situation) decideBroken(d decision, want wanted, st *InstanceState) decision {
	policy := want.instance.Broken
	if policy == "" {
		policy = s.policy.Broken
	}
	trouble := d.record.Trouble()
	if st.Failed != nil {
		trouble = st.Failed.Message
	}
	switch {
	case policy != BrokenRecreate:
		return d.as(PhaseStalled, "it is broken: "+trouble+". Terminate it, or let the policy recreate broken instances")
	case st.Recreated >= maxRecreated && (st.Failed == nil || st.Failed.Digest == want.digest):
		return d.as(PhaseStalled, fmt.Sprintf("it is broken, and was recreated %d times already: %s", st.Recreated, trouble))
	}
	d.verb, d.action, d.again, d.reason = terminate, ActionRecreate, true, "it is broken: "+trouble
	return d.held(st, want.digest, s.policy)
}

// decideRemoval returns the decision for an instance that isn't desired.
func (s *situation) decideRemoval(name string, st *InstanceState, now time.Time) decision {
	d := decision{name: name, now: now}
	rec, there := s.seen.byID[st.ID]
	if st.ID == "" && st.Creating != nil {
		if all := s.seen.byName[name]; len(all) == 1 && all[0].NSD == st.NSD {
			d.verb, d.record = adopt, all[0]
			return d
		}
		if left := st.Creating.Add(s.policy.Settle).Sub(d.now); left > 0 {
			d.later = left
			return d.as(PhaseRemoving, "it was requested, and it isn't known whether OSM created it")
		}
	}
	switch {
	case st.ID == "" || !there && !s.seen.foreign:
		d.verb, d.phase = forget, PhaseRemoving
		return d
	case !there:
		return d.as(PhaseKept, "it is in another OSM: "+s.seen.recorded)
	case st.Pending != nil && st.Pending.Kind != Terminate:
		d = inFlight(d, st)
		d.phase = PhaseRemoving
		return d
	case st.Pending != nil:
		return d.as(PhaseRemoving, "it is being terminated")
	case rec.Terminating():
		return d.as(PhaseRemoving, "another client terminates it")
	case s.desired.Keeps(InstanceKey(name)):
		return d.as(PhaseKept, "it is left as it is for now")
	case !s.policy.Prune:
		return d.as(PhaseKept, "it is no longer desired, and the policy is not to prune")
	case rec.Busy():
		return d.as(PhaseRemoving, fmt.Sprintf("OSM is at work on it (%s)", rec.CurrentOperation))
	}
	d.record, d.verb, d.action, d.reason, d.free = rec, terminate, ActionDelete, "it is no longer desired", !rec.Instantiated()
	return d.held(st, terminating, s.policy)
}

func inFlight(d decision, st *InstanceState) decision {
	if st.Pending.ID == "" {
		return d.wait("it isn't known whether OSM began to " + st.Pending.Kind + " it")
	}
	since := ""
	if age := d.now.Sub(st.Pending.Since); age > 3*time.Hour {
		since = fmt.Sprintf(" for %s, which is too long: check operation %s in OSM", age.Round(time.Minute), st.Pending.ID)
	}
	if st.Pending.Kind == Upgrade {
		return d.wait("OSM upgrades " + st.Pending.KDU + since)
	}
	return d.wait("OSM is to " + st.Pending.Kind + " it" + since)
}

func (d decision) wait(message string) decision { return d.as(PhaseProgressing, message) }

func (d decision) as(phase, message string) decision {
	d.verb, d.phase, d.message = nothing, phase, message
	return d
}

// held returns d, or a decision to wait if the step failed with the same digest and
// its pause isn't over.
func (d decision) held(st *InstanceState, digest string, p Policy) decision {
	if st.Failed == nil || st.Failed.Digest != digest {
		return d
	}
	pause := p.Retry
	if st.Failed.Busy {
		pause = p.Poll
	}
	left := st.Failed.pauseLeft(p, pause, d.now)
	if left <= 0 {
		return d
	}
	phase := st.Failed.phase()
	switch {
	case st.Failed.Busy && digest == terminating:
		phase = PhaseRemoving
	case st.Failed.Busy:
		phase = PhaseProgressing
	}
	d = d.as(phase, st.Failed.Message)
	d.later = left
	return d
}
