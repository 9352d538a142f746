package osm

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// record returns OSM's record of an instance that is instantiated, with changes.
func record(id string, changes ...func(*nbi.InstanceRecord)) nbi.InstanceRecord {
	r := nbi.InstanceRecord{ID: id, Name: "a", NSD: "upf_ns", State: "READY", CurrentOperation: "IDLE"}
	r.Admin.State = "INSTANTIATED"
	for _, change := range changes {
		change(&r)
	}
	return r
}

func bare(r *nbi.InstanceRecord)       { r.State, r.Admin.State = "NOT_INSTANTIATED", "NOT_INSTANTIATED" }
func broken(r *nbi.InstanceRecord)     { r.State, r.ErrorDetail = "BROKEN", "no image" }
func busy(r *nbi.InstanceRecord)       { r.CurrentOperation = "SCALING" }
func terminates(r *nbi.InstanceRecord) { r.State = "TERMINATING" }
func ofAnother(r *nbi.InstanceRecord)  { r.NSD = "smf_ns" }
func shows(text string) func(*nbi.InstanceRecord) {
	return func(r *nbi.InstanceRecord) {
		var k nbi.DeployedKDU
		if err := json.Unmarshal(fmt.Appendf(nil, `{"kdu-name": "upf", "member-vnf-index": "1", "detailed-status": "{'config': %s}"}`, text), &k); err != nil {
			panic(err)
		}
		r.Admin.Deployed.K8s = append(r.Admin.Deployed.K8s, k)
	}
}

// A decision is a function of the recorded state, the records of OSM, the policy and the
// time.
func TestDecisionsFollowFromStateAndRecords(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	desired := Instance{Name: "a", NSD: "upf_ns", VIM: "vim", VNFs: []VNF{{Member: "1", KDUs: []KDU{{Name: "upf", Params: map[string]any{"replicas": 2}}}}}}
	digest := want(desired, local{}).digest
	good := want(desired, local{}).kdus["1/upf"].state
	shown := good
	shown.Shown = true
	known := func(change ...func(*InstanceState)) *InstanceState {
		s := InstanceState{ID: "1", NSD: "upf_ns", VIM: "vim", KDUs: map[string]KDUState{"1/upf": good}}
		for _, c := range change {
			c(&s)
		}
		return &s
	}
	failedAt := func(ago time.Duration, f Failure) func(*InstanceState) {
		f.At = at.Add(-ago)
		return func(s *InstanceState) { s.Failed = &f }
	}
	requested := func(ago time.Duration) *InstanceState {
		began := at.Add(-ago)
		return &InstanceState{NSD: "upf_ns", VIM: "vim", Creating: &began}
	}
	pending := func(p Pending) func(*InstanceState) {
		p.Since = at.Add(-time.Hour)
		return func(s *InstanceState) { s.Pending = &p }
	}
	older := KDUState{Values: map[string]string{"replicas": "other"}}
	type records = []nbi.InstanceRecord
	for name, c := range map[string]struct {
		why     string
		state   *InstanceState
		records records
		leaves  bool // it is not desired
		change  func(*situation)
		verb    verb
		phase   string
		text    string // in the message or the reason
		later   time.Duration
	}{
		"new":                        {why: "nothing has its name", verb: create, text: "isn't there"},
		"adopted":                    {why: "OSM has one of its name and NSD", records: records{record("7")}, verb: adopt, text: "of that name and NSD"},
		"two of its name":            {why: "each of them may be it", records: records{record("7"), record("8")}, phase: PhaseStalled, text: "2 instances of that name"},
		"name of another":            {why: "the NSD differs", records: records{record("7", ofAnother)}, phase: PhaseStalled, text: `NSD "smf_ns"`},
		"name is leaving":            {why: "it would be adopted and vanish", records: records{record("7", terminates)}, phase: PhaseProgressing, text: "being terminated"},
		"requested just now":         {why: "OSM may be about to show it", state: requested(4 * time.Second), phase: PhaseProgressing, text: "isn't known whether", later: 6 * time.Second},
		"requested 10 s ago":         {why: "the time is over", state: requested(10 * time.Second), verb: create},
		"new, others elsewhere":      {why: "it was never in the other OSM", change: func(s *situation) { s.seen.foreign = true }, verb: create},
		"requested long ago":         {why: "OSM never made it", state: requested(11 * time.Second), verb: create},
		"requested and shown":        {why: "the response was lost", state: requested(time.Second), records: records{record("7")}, verb: adopt},
		"removed by others":          {why: "others of its name are not it", state: known(), verb: create, text: "removed from OSM"},
		"in another OSM":             {why: "it runs there still", state: known(), change: func(s *situation) { s.seen.foreign, s.seen.recorded, s.target = true, "one", "two" }, phase: PhaseStalled, text: `known as 1 in OSM "one", and not in "two"`},
		"as desired":                 {why: "values and chart are the same", state: known(), records: records{record("1")}, phase: PhaseReady},
		"operation in flight":        {why: "one at a time", state: known(pending(Pending{ID: "o", Kind: Upgrade, KDU: "1/upf"})), records: records{record("1")}, phase: PhaseProgressing, text: "OSM upgrades 1/upf"},
		"operation not known":        {why: "the response was lost", state: known(pending(Pending{Kind: Terminate})), records: records{record("1")}, phase: PhaseProgressing, text: "isn't known whether OSM began to terminate it"},
		"terminated by others":       {why: "it can't be changed any more", state: known(), records: records{record("1", terminates)}, phase: PhaseProgressing, text: "another client terminates it"},
		"busy":                       {why: "OSM would queue the operation", state: known(), records: records{record("1", busy)}, phase: PhaseProgressing, text: "at work on it (SCALING)"},
		"only a record":              {why: "it was never instantiated", state: known(), records: records{record("1", bare)}, verb: instantiate, text: "never instantiated"},
		"moved":                      {why: "OSM can't move it", state: known(func(s *InstanceState) { s.VIM = "old" }), records: records{record("1")}, phase: PhaseStalled, text: `its VIM account changed from "old" to "vim": OSM can't`},
		"moved, to be replaced":      {why: "the policy allows it", state: known(func(s *InstanceState) { s.NSD = "old" }), records: records{record("1")}, change: func(s *situation) { s.policy.Replace = true }, verb: terminate, text: `its NSD changed from "old"`},
		"moved before it began":      {why: "nothing runs yet", state: known(func(s *InstanceState) { s.VIM = "old" }), records: records{record("1", bare)}, verb: terminate},
		"other values":               {why: "they changed", state: known(func(s *InstanceState) { s.KDUs["1/upf"] = older }), records: records{record("1")}, verb: upgrade, text: "its values changed"},
		"unknown values":             {why: "another client made it", state: known(func(s *InstanceState) { s.KDUs, s.Adopted = nil, true }), records: records{record("1")}, verb: upgrade, text: "not known to have"},
		"changed by others":          {why: "OSM shows other values than were shown before", state: known(func(s *InstanceState) { s.KDUs["1/upf"] = shown }), records: records{record("1", shows("{'replicas': 3}"))}, verb: upgrade, text: "another client changed"},
		"shown as applied":           {why: "they are the same", state: known(func(s *InstanceState) { s.KDUs["1/upf"] = shown }), records: records{record("1", shows("{'replicas': 2}"))}, phase: PhaseReady},
		"no longer shown":            {why: "nothing is known", state: known(func(s *InstanceState) { s.KDUs["1/upf"] = shown }), records: records{record("1")}, phase: PhaseReady},
		"never shown":                {why: "OSM may show them in another form", state: known(), records: records{record("1", shows("{'replicas': 3}"))}, phase: PhaseReady},
		"broken":                     {why: "users repair it", state: known(), records: records{record("1", broken)}, phase: PhaseStalled, text: "it is broken: no image. Terminate it"},
		"broken, to be recreated":    {why: "the policy says so", state: known(), records: records{record("1", broken)}, change: func(s *situation) { s.policy.Broken = BrokenRecreate }, verb: terminate, text: "it is broken: no image"},
		"broken again and again":     {why: "it won't help", state: known(func(s *InstanceState) { s.Recreated = 3 }), records: records{record("1", broken)}, change: func(s *situation) { s.policy.Broken = BrokenRecreate }, phase: PhaseStalled, text: "recreated 3 times"},
		"broken, failed again":       {why: "these values failed", state: known(func(s *InstanceState) { s.Recreated = 3 }, failedAt(time.Hour, Failure{Digest: digest, Message: "m", Count: 1})), records: records{record("1", broken)}, change: func(s *situation) { s.policy.Broken = BrokenRecreate }, phase: PhaseStalled, text: "recreated 3 times already: m"},
		"broken, then changed":       {why: "other values may help", state: known(func(s *InstanceState) { s.Recreated = 3 }, failedAt(time.Hour, Failure{Digest: "other", Message: "m", Count: 1})), records: records{record("1", broken)}, change: func(s *situation) { s.policy.Broken = BrokenRecreate }, verb: terminate, text: "it is broken: m"},
		"needs a package":            {why: "the package was refused", state: known(func(s *InstanceState) { s.KDUs["1/upf"] = older }), records: records{record("1")}, change: func(s *situation) { s.waiting = map[string]string{"a": "it waits for p"} }, phase: PhaseStalled, text: "it waits for p"},
		"ready, and needs a package": {why: "it runs with the old one", state: known(), records: records{record("1")}, change: func(s *situation) { s.waiting = map[string]string{"a": "it waits for p"} }, phase: PhaseReady},
		"invalid, twice": {why: "there is one status for a name", change: func(s *situation) {
			s.desired.Instances, s.refused = append(s.desired.Instances, desired), map[string]error{"a": errSave}
		}, phase: PhaseStalled},
		"invalid":                  {why: "the desired instance must change", state: known(), records: records{record("1")}, change: func(s *situation) { s.refused = map[string]error{"a": errSave} }, phase: PhaseStalled, text: errSave.Error()},
		"failed just now":          {why: "the pause isn't over", state: known(func(s *InstanceState) { s.KDUs = nil }, failedAt(time.Minute, Failure{Digest: digest, Message: "no", Count: 2})), records: records{record("1")}, phase: PhaseFailed, text: "no", later: time.Minute},
		"refused just now":         {why: "OSM or the files must change", state: known(func(s *InstanceState) { s.KDUs = nil }, failedAt(0, Failure{Digest: digest, Message: "no", Count: 9, Refused: true})), records: records{record("1")}, phase: PhaseStalled, text: "no", later: 64 * time.Minute},
		"busy just now":            {why: "OSM is ready for it soon", state: known(func(s *InstanceState) { s.KDUs = nil }, failedAt(0, Failure{Digest: digest, Message: "no", Count: 1, Busy: true})), records: records{record("1")}, phase: PhaseProgressing, later: 5 * time.Second},
		"failed long ago":          {why: "the pause is over", state: known(func(s *InstanceState) { s.KDUs = nil }, failedAt(2*time.Minute, Failure{Digest: digest, Message: "no", Count: 2})), records: records{record("1")}, verb: upgrade},
		"failed with other values": {why: "they changed since", state: known(func(s *InstanceState) { s.KDUs = nil }, failedAt(0, Failure{Digest: "other", Message: "no", Count: 2})), records: records{record("1")}, verb: upgrade},

		"leaves":                     {why: "it isn't desired", leaves: true, state: known(), records: records{record("1")}, verb: terminate, text: "no longer desired"},
		"leaves, and has left":       {why: "OSM doesn't have it", leaves: true, state: known(), verb: forget, phase: PhaseRemoving},
		"leaves another OSM":         {why: "it runs there", leaves: true, state: known(), change: func(s *situation) { s.seen.foreign, s.seen.recorded = true, "one" }, phase: PhaseKept, text: "another OSM: one"},
		"leaves, no prune":           {why: "the policy", leaves: true, state: known(), records: records{record("1")}, change: func(s *situation) { s.policy.Prune = false }, phase: PhaseKept, text: "not to prune"},
		"leaves, kept":               {why: "its file can't be read", leaves: true, state: known(), records: records{record("1")}, change: func(s *situation) { s.desired.Keep = []string{"instance/a"} }, phase: PhaseKept, text: "left as it is"},
		"leaves, all kept":           {why: "a file can't be read", leaves: true, state: known(), records: records{record("1")}, change: func(s *situation) { s.desired.Keep = []string{KeepAll} }, phase: PhaseKept},
		"leaves, in an upgrade":      {why: "one at a time", leaves: true, state: known(pending(Pending{ID: "o", Kind: Upgrade, KDU: "1/upf"})), records: records{record("1")}, phase: PhaseRemoving, text: "OSM upgrades"},
		"leaves, in its removal":     {why: "it has begun", leaves: true, state: known(pending(Pending{ID: "o", Kind: Terminate})), records: records{record("1")}, phase: PhaseRemoving, text: "being terminated"},
		"leaves, removed by others":  {why: "it has begun", leaves: true, state: known(), records: records{record("1", terminates)}, phase: PhaseRemoving, text: "another client"},
		"leaves, busy":               {why: "OSM would queue the operation", leaves: true, state: known(), records: records{record("1", busy)}, phase: PhaseRemoving, text: "at work"},
		"leaves, failed just now":    {why: "the pause isn't over", leaves: true, state: known(failedAt(0, Failure{Digest: terminating, Message: "no", Count: 1})), records: records{record("1")}, phase: PhaseFailed, later: time.Minute},
		"leaves, refused for now":    {why: "OSM is ready for it soon", leaves: true, state: known(failedAt(0, Failure{Digest: terminating, Message: "no", Count: 1, Busy: true})), records: records{record("1")}, phase: PhaseRemoving, later: 5 * time.Second},
		"leaves, requested":          {why: "OSM may be about to show it", leaves: true, state: requested(time.Second), phase: PhaseRemoving, text: "isn't known whether", later: 9 * time.Second},
		"leaves, requested long ago": {why: "OSM never made it", leaves: true, state: requested(time.Minute), verb: forget, phase: PhaseRemoving},
		"leaves, requested 10 s ago": {why: "the time is over", leaves: true, state: requested(10 * time.Second), verb: forget, phase: PhaseRemoving},
		"leaves, never elsewhere":    {why: "it was never in the other OSM", leaves: true, state: requested(time.Minute), change: func(s *situation) { s.seen.foreign = true }, verb: forget, phase: PhaseRemoving},
		"leaves, was refused":        {why: "the one of its name is not it", leaves: true, state: &InstanceState{NSD: "upf_ns"}, records: records{record("7")}, verb: forget, phase: PhaseRemoving},
		"leaves, shown":              {why: "the response was lost", leaves: true, state: requested(time.Second), records: records{record("7")}, verb: adopt},
		"leaves, another shown":      {why: "it has another NSD", leaves: true, state: requested(time.Minute), records: records{record("7", ofAnother)}, verb: forget, phase: PhaseRemoving},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := situation{
				policy: Policy{Prune: true, Retry: time.Minute, Poll: 5 * time.Second, Settle: 10 * time.Second}, wanted: map[string]wanted{},
				seen: observation{byID: map[string]nbi.InstanceRecord{}, byName: map[string][]nbi.InstanceRecord{}},
			}
			if !c.leaves {
				s.desired.Instances = []Instance{desired}
				s.wanted["a"] = want(desired, local{})
			}
			for _, r := range c.records {
				s.seen.byID[r.ID] = r
				s.seen.byName[r.Name] = append(s.seen.byName[r.Name], r)
			}
			if c.change != nil {
				c.change(&s)
			}
			state := State{}
			if c.state != nil {
				state.Instances = map[string]*InstanceState{"a": c.state}
			}
			before := maps.Clone(state.Instances)
			got := s.decide(state, nil, at)
			if len(got) != 1 || got[0].name != "a" {
				t.Fatalf("%s: decisions: %+v", c.why, got)
			}
			d := got[0]
			if d.verb != c.verb || d.phase != c.phase || d.later != c.later || !strings.Contains(d.message+d.reason, c.text) {
				t.Errorf("%s: verb %d, phase %q, later %s, message %q, reason %q; want verb %d, phase %q, later %s, text %q",
					c.why, d.verb, d.phase, d.later, d.message, d.reason, c.verb, c.phase, c.later, c.text)
			}
			if adopts := d.verb == adopt && !c.leaves && c.state == nil; adopts != (d.action == ActionAdopt) {
				t.Errorf("%s: action %q: users see an adoption only of instances that were never requested", c.why, d.action)
			}
			if !maps.Equal(before, state.Instances) {
				t.Errorf("%s: the state was changed", c.why)
			}
			if only := s.decide(state, map[string]bool{"a": true}, at); len(only) != 1 || only[0].verb != d.verb {
				t.Errorf("%s: decisions for this instance only: %+v", c.why, only)
			}
			if only := s.decide(state, map[string]bool{"other": true}, at); len(only) > 0 {
				t.Errorf("%s: decisions for other instances: %+v", c.why, only)
			}
		})
	}
}

// Removals and recreations count towards the budget, unless nothing runs.
func TestDecisionsToTerminateNameWhatRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why         string
		record      nbi.InstanceRecord
		desired     bool
		again, free bool
		action      string
	}{
		"removed":               {"a service ends", record("1"), false, false, false, ActionDelete},
		"removed, never began":  {"nothing runs", record("1", bare), false, false, true, ActionDelete},
		"replaced":              {"a service is interrupted", record("1"), true, true, false, ActionRecreate},
		"replaced, never began": {"nothing runs", record("1", bare), true, true, true, ActionRecreate},
	} {
		s := situation{
			policy: Policy{Prune: true, Replace: true}, wanted: map[string]wanted{},
			seen: observation{byID: map[string]nbi.InstanceRecord{"1": c.record}},
		}
		if c.desired {
			i := Instance{Name: "a", NSD: "new_ns", VIM: "vim"}
			s.desired.Instances, s.wanted["a"] = []Instance{i}, want(i, local{})
		}
		d := s.decide(State{Instances: map[string]*InstanceState{"a": {ID: "1", NSD: "upf_ns", VIM: "vim"}}}, nil, time.Now())[0]
		if d.verb != terminate || d.again != c.again || d.free != c.free || d.action != c.action || d.record.ID != "1" {
			t.Errorf("%s: %s: %+v", name, c.why, d)
		}
	}
}

// The message of a long operation names the operation, for users to check it.
func TestLongOperationsAreNamed(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for age, want := range map[time.Duration]string{
		time.Hour:               "OSM is to instantiate it",
		3 * time.Hour:           "OSM is to instantiate it",
		3*time.Hour + time.Hour: "OSM is to instantiate it for 4h0m0s, which is too long: check operation o in OSM",
	} {
		st := InstanceState{Pending: &Pending{ID: "o", Kind: Instantiate, Since: at.Add(-age)}}
		if d := inFlight(decision{now: at}, &st); d.message != want {
			t.Errorf("after %s: %q, want %q", age, d.message, want)
		}
	}
}
