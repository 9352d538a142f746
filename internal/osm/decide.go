package osm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// verb is what is to be done with an instance next.
type verb int

const (
	nothing     verb = iota
	create           // make its record, and instantiate it
	adopt            // take over a record of its name, and look again
	instantiate      // of which there is only the record
	upgrade          // one KDU
	terminate        // and remove it
	forget           // what isn't there
)

// decision is what is to be done with an instance, and how it is until then.
type decision struct {
	name   string
	verb   verb
	action string // for people; none if it is a step on the way
	reason string
	paths  []string
	record InstanceRecord
	kdu    string // "member/KDU" of an upgrade
	reset  bool   // of an upgrade: nothing that is there stays
	again  bool   // a removal, after which it is made anew
	free   bool   // a removal that costs no budget: nothing runs

	phase   string
	message string
	later   time.Duration // when to look again; never if 0
}

// terminating is what stands for the digest of what was desired, if that was
// to be gone.
const terminating = "terminate"

// decide says what is to be done with each instance.
func (w *run) decide(only map[string]bool) []decision {
	var all []decision
	state := w.book.state()
	done := map[string]bool{}
	for _, i := range w.desired.Instances {
		if done[i.Name] || only != nil && !only[i.Name] {
			continue
		}
		done[i.Name] = true
		if err := w.refused[i.Name]; err != nil {
			all = append(all, decision{name: i.Name, phase: PhaseStalled, message: err.Error()})
			continue
		}
		all = append(all, w.hold(w.decideOn(i.Name, state.Instances[i.Name])))
	}
	for _, name := range slices.Sorted(maps.Keys(state.Instances)) {
		if _, desired := w.wanted[name]; !desired && (only == nil || only[name]) {
			all = append(all, w.decideRemoval(name, state.Instances[name]))
		}
	}
	return all
}

// decideOn says what is to be done with one that is desired.
func (w *run) decideOn(name string, st *InstanceState) decision {
	want := w.wanted[name]
	d := decision{name: name}
	if st == nil {
		st = &InstanceState{}
	}
	rec, there := w.seen.byID[st.ID]
	switch {
	case st.ID == "" || !there:
		return w.decideMissing(d, want, st)
	case st.Pending != nil:
		return inFlight(d, st)
	case rec.State == stateTerminating:
		return d.wait("somebody else terminates it")
	case rec.Busy():
		return d.wait(fmt.Sprintf("OSM is at work on it (%s)", rec.CurrentOperation))
	}
	d.record = rec
	moved := moves(want, st)
	switch {
	case len(moved) > 0 && (w.policy.Replace || !rec.Instantiated()):
		d.verb, d.action, d.reason, d.again, d.free = terminate, ActionRecreate, strings.Join(moved, ", "), true, !rec.Instantiated()
		return d.held(st, terminating, w.policy)
	case len(moved) > 0:
		return d.as(PhaseStalled, strings.Join(moved, ", ")+": OSM can't change that in an instance. Undo it, rename the instance, or let the policy replace instances")
	case !rec.Instantiated():
		d.verb, d.action, d.reason = instantiate, ActionCreate, "its record is there, and it was never instantiated"
		return d.held(st, want.digest, w.policy)
	case rec.Broken():
		return w.decideBroken(d, want, st)
	}
	for _, k := range slices.Sorted(maps.Keys(want.kdus)) {
		if have := st.KDUs[k]; !have.same(want.kdus[k].state) {
			d.verb, d.action, d.kdu, d.paths = upgrade, ActionUpgrade, k, have.changes(k, want.kdus[k].state)
			d.reason = "its values changed"
			if st.Adopted {
				d.reason = "it is not known to have these values"
			}
			return d.held(st, want.digest, w.policy)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(want.kdus)) {
		have := st.KDUs[k]
		if _, shown := rec.values(k); have.Shown && shown && !rec.shows(k, have.Values) {
			d.verb, d.action, d.kdu, d.reset, d.reason = upgrade, ActionUpgrade, k, true, "somebody else changed its values in OSM"
			return d.held(st, want.digest, w.policy)
		}
	}
	return d.as(PhaseReady, "")
}

// moves is what can't be changed in an instance, and did.
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

// decideMissing says what is to be done with one that isn't known to be there.
func (w *run) decideMissing(d decision, want wanted, st *InstanceState) decision {
	if st.ID != "" && w.seen.foreign {
		return d.as(PhaseStalled, fmt.Sprintf("it is known as %s in OSM %q, and not in %q: it isn't made there as long as that isn't cleared. Change the connection back, or begin with a new source",
			st.ID, w.book.state().Target, w.Client.Target()))
	}
	matches := w.seen.byName[d.name]
	if st.ID != "" { // it was removed: others that have its name aren't it
		d.reason = "it was removed from OSM"
	}
	switch {
	case len(matches) > 1:
		return d.as(PhaseStalled, fmt.Sprintf("OSM has %d instances of that name, and none is known to be it: remove all but one, or rename it", len(matches)))
	case len(matches) == 1 && matches[0].NSD != want.instance.NSD:
		return d.as(PhaseStalled, fmt.Sprintf("OSM has an instance of that name with the NSD %q, so it is another one: rename or remove one of them", matches[0].NSD))
	case len(matches) == 1 && matches[0].State == stateTerminating:
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
		if left := time.Until(st.Creating.Add(w.policy.Settle)); left > 0 {
			d.later = left
			return d.wait("it was asked for, and it isn't known whether OSM did it")
		}
	}
	d.verb, d.action = create, ActionCreate
	if d.reason == "" {
		d.reason = "it isn't there"
	}
	return d.held(st, want.digest, w.policy)
}

// decideBroken says what is to be done with one that is broken.
func (w *run) decideBroken(d decision, want wanted, st *InstanceState) decision {
	policy := want.instance.Broken
	if policy == "" {
		policy = w.policy.Broken
	}
	trouble := d.record.Trouble()
	if st.Failed != nil {
		trouble = st.Failed.Message
	}
	switch {
	case policy != BrokenRecreate:
		return d.as(PhaseStalled, "it is broken: "+trouble+". Terminate it, or let the policy make broken instances anew")
	case st.Recreated >= maxRecreated && (st.Failed == nil || st.Failed.Digest == want.digest):
		return d.as(PhaseStalled, fmt.Sprintf("it is broken, and was made anew %d times already: %s", st.Recreated, trouble))
	}
	d.verb, d.action, d.again, d.reason = terminate, ActionRecreate, true, "it is broken: "+trouble
	return d.held(st, want.digest, w.policy)
}

// decideRemoval says what is to be done with one that isn't desired.
func (w *run) decideRemoval(name string, st *InstanceState) decision {
	d := decision{name: name}
	rec, there := w.seen.byID[st.ID]
	if st.ID == "" && st.Creating != nil {
		if all := w.seen.byName[name]; len(all) == 1 && all[0].NSD == st.NSD {
			d.verb, d.record = adopt, all[0]
			return d
		}
		if left := time.Until(st.Creating.Add(w.policy.Settle)); left > 0 {
			d.later = left
			return d.as(PhaseRemoving, "it was asked for, and it isn't known whether OSM did it")
		}
	}
	switch {
	case st.ID == "" || !there && !w.seen.foreign:
		d.verb, d.phase = forget, PhaseRemoving
		return d
	case !there:
		return d.as(PhaseKept, "it is in another OSM: "+w.book.state().Target)
	case st.Pending != nil && st.Pending.Kind != Terminate:
		d = inFlight(d, st)
		d.phase = PhaseRemoving
		return d
	case st.Pending != nil:
		return d.as(PhaseRemoving, "it is being terminated")
	case rec.State == stateTerminating:
		return d.as(PhaseRemoving, "somebody else terminates it")
	case w.desired.keeps(whatInstance + "/" + name):
		return d.as(PhaseKept, "it is left as it is for now")
	case !w.policy.Prune:
		return d.as(PhaseKept, "nobody wants it any more, and the policy is not to prune")
	case rec.Busy():
		return d.as(PhaseRemoving, fmt.Sprintf("OSM is at work on it (%s)", rec.CurrentOperation))
	}
	d.record, d.verb, d.action, d.reason, d.free = rec, terminate, ActionDelete, "nobody wants it any more", !rec.Instantiated()
	return d.held(st, terminating, w.policy)
}

func inFlight(d decision, st *InstanceState) decision {
	if st.Pending.ID == "" {
		return d.wait("it isn't known whether OSM began to " + st.Pending.Kind + " it")
	}
	since := ""
	if age := time.Since(st.Pending.Since); age > 3*time.Hour {
		since = fmt.Sprintf(" for %s, which is too long: look at operation %s in OSM", age.Round(time.Minute), st.Pending.ID)
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

// held lets something wait that didn't work the last time.
func (d decision) held(st *InstanceState, digest string, p Policy) decision {
	if st.Failed == nil || st.Failed.Digest != digest {
		return d
	}
	pause := p.Retry
	if st.Failed.Busy {
		pause = p.Poll
	}
	left := time.Until(st.Failed.At.Add(pause << min(st.Failed.Count-1, 6)))
	if left <= 0 {
		return d
	}
	phase := PhaseFailed
	switch {
	case st.Failed.Busy && digest == terminating:
		phase = PhaseRemoving
	case st.Failed.Busy:
		phase = PhaseProgressing
	case st.Failed.Refused:
		phase = PhaseStalled
	}
	d = d.as(phase, st.Failed.Message)
	d.later = left
	return d
}
