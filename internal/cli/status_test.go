package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

func TestStatusHasTwentyLinesAtMost(t *testing.T) {
	t.Parallel()
	for _, waits := range []int{0, 3, 8} {
		f := &fleet{problems: []string{"the disk is full"}}
		for i := range 40 {
			f.Failures = append(f.Failures, tko.FleetFailure{Kind: tko.KindSite, Type: tko.ConditionScheduled, Reason: fmt.Sprintf("Reason%d", i), Count: 40 - i, Example: "lagos"})
		}
		for i := range waits {
			f.Waits = append(f.Waits, tko.FleetWait{Kind: tko.KindDeployment, Count: i + 1, What: "luck"})
		}
		var out bytes.Buffer
		a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil)
		if err := f.print(a); err != nil {
			t.Fatal(err)
		}
		if err := a.out.Flush(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if lines := strings.Count(text, "\n"); lines > 20 || !strings.Contains(text, "Reason2") || !strings.Contains(text, "failures for other reasons: see tko status -o json") || strings.Count(text, "waiting") != waits {
			t.Errorf("with %d waits, %d lines:\n%s", waits, lines, text)
		}
	}
}

// The status and the dashboards count the same states.
func TestStatusCountsTheStatesOfDashboards(t *testing.T) {
	t.Parallel()
	condition := func(typ, status, reason string) tko.Condition {
		return tko.Condition{Type: typ, Status: status, Reason: reason, ObservedRevision: 1}
	}
	scheduled := condition(tko.ConditionScheduled, tko.ConditionTrue, "Applied")
	all := map[string][]tko.Condition{
		"healthy": {scheduled, condition(tko.ConditionHealthy, tko.ConditionTrue, "Healthy")},
		"in git":  {scheduled, condition(tko.ConditionHealthy, tko.ConditionUnknown, tko.ReasonHealthNotReported)},
		"silent":  {scheduled},
		"failing": {scheduled, condition(tko.ConditionHealthy, tko.ConditionFalse, "NotReady")},
		"rising":  {scheduled, condition(tko.ConditionHealthy, tko.ConditionFalse, "InProgress")},
	}
	sum := new(tko.FleetCount)
	want := map[tko.State]int{}
	for name, conditions := range all {
		d := tko.Deployment{ID: tko.DeploymentID(name), Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 1, Conditions: conditions}}
		sum.AddDeployment(d, 1)
		sum.AddSite(tko.Site{Stamp: d.Stamp}, 1)
		want[d.Summary().State]++
	}
	f := &fleet{Fleet: sum.Fleet()}
	value := f.value()
	for _, kind := range []string{"sites", "deployments"} {
		got, _ := value[kind].(map[string]any)
		for _, state := range tko.States() {
			if got[string(state)] != int64(want[state]) {
				t.Errorf("%s: %v %s, want %d", kind, got[string(state)], state, want[state])
			}
		}
		if got["unhealthy"] != int64(2) || got["total"] != int64(len(all)) {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if got := fleetStates(f.Deployments); got != "1 failing, 1 working, 2 unknown, 1 healthy" {
		t.Errorf("in words: %s", got)
	}
}

// What waits for something that doesn't exist yet, and what was delivered in part, doesn't fail,
// and isn't silent: status counts it, with the command that lists it, and a summary says why.
func TestStatusCountsWhatWaitsAndWhatWasDeliveredInPart(t *testing.T) {
	t.Parallel()
	refs := tko.Condition{Type: tko.ConditionResolvedRefs, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForReferences, Message: `template "t" doesn't exist yet`}
	prepared := refs
	prepared.Type = tko.ConditionPrepared
	partly := tko.Condition{Type: tko.ConditionDelivered, Status: tko.ConditionFalse, Reason: tko.ReasonDeliveredPartly, Message: "delivered 1 of 14 resources"}
	well := func(typ string) tko.Condition {
		return tko.Condition{Type: typ, Status: tko.ConditionTrue, ObservedRevision: 1}
	}
	waiting := tko.Deployment{ID: "w", AwaitedTemplate: "t", Stamp: tko.Stamp{Revision: 1, Conditions: []tko.Condition{prepared, refs}}}
	delivered := tko.Deployment{
		ID: "d", Site: "s", Prepared: true, Approved: true,
		Stamp: tko.Stamp{Revision: 1, Conditions: []tko.Condition{partly, well(tko.ConditionScheduled), well(tko.ConditionHealthy)}},
	}
	sum := new(tko.FleetCount)
	sum.AddSite(tko.Site{ID: "s", AwaitedTemplate: "t", Stamp: tko.Stamp{Conditions: []tko.Condition{refs}}}, 1)
	sum.AddDeployment(waiting, 1)
	sum.AddDeployment(delivered, 1)
	f := &fleet{Fleet: sum.Fleet()}
	var out bytes.Buffer
	a := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil)
	if err := errors.Join(f.print(a), a.out.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Nothing fails.", "1 site waiting for templates that don't exist yet: see tko site list --condition ResolvedRefs=False",
		"1 deployment waiting for templates or sites that don't exist yet: see tko deployment list --condition ResolvedRefs=False",
		"1 deployment delivered in part: see tko deployment list --condition Delivered=False -o wide",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("status lacks %q:\n%s", want, out.String())
		}
	}
	for _, d := range []tko.Deployment{waiting, delivered} {
		if s := d.Summary(); s.State != tko.StateWaiting || s.Message == "" {
			t.Errorf("the state of %s is %+v", d.ID, s)
		}
	}
	h := history{Deployment: delivered, revisions: []tko.Stamp{delivered.Stamp}}
	out.Reset()
	if err := errors.Join(h.print(a), a.out.Flush()); err != nil || !strings.Contains(out.String(), "delivered 1 of 14 resources") {
		t.Errorf("explain says, %v:\n%s", err, out.String())
	}
}

// A server that counts is asked once; of one of an earlier version, the command counts what it lists.
func TestStatusIsCountedByTheServer(t *testing.T) {
	t.Parallel()
	f := example()
	f.fleet = &tko.Fleet{
		Sites: tko.FleetCounts{Total: 7, Scheduled: 5, NotScheduled: 2, Failing: 2, Healthy: 5}, Deployments: tko.FleetCounts{Total: 1_000_000, Prepared: 3, Waiting: 4},
		Failures: []tko.FleetFailure{{Kind: tko.KindSite, Type: tko.ConditionScheduled, Reason: "Unreachable", Count: 2, Example: "lagos", Message: "no route"}},
		Waits:    []tko.FleetWait{{Kind: tko.KindDeployment, What: tko.WaitsApproval, Count: 3}, {Kind: tko.KindSite, What: "luck", Count: 1}},
	}
	got := run(t, f, "", "status", "--site-id", "l*")
	for _, want := range []string{
		"Sites:        7: 5 scheduled, 2 not; 2 failing, 5 healthy\nDeployments:  1000000: 3 prepared, 0 approved, 0 scheduled; 4 waiting, 0 healthy\n",
		"Unreachable", "no route", "3 deployments waiting for an approval: see tko deployment list --prepared --approved=false\n", "1 site waiting: luck: see tko site list -o wide\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the status lacks %q:\n%s%s", want, got.out, got.err)
		}
	}
	if asked := strings.Join(f.asked, "; "); asked != "about; fleet [l*] map[]" {
		t.Errorf("the server was asked: %s", asked)
	}
	f = example()
	got = run(t, f, "", "status")
	if asked := strings.Join(f.asked, "; "); got.code != 0 || !strings.Contains(asked, "sites") || !strings.Contains(asked, "deployments") {
		t.Errorf("an earlier server was asked: %s\n%s%s", asked, got.out, got.err)
	}
}
