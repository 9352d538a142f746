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
		f := &fleet{failures: map[failureKey]*failure{}, problems: []string{"the disk is full"}}
		for i := range 40 {
			key := failureKey{tko.KindSite, tko.ConditionScheduled, fmt.Sprintf("Reason%d", i)}
			f.failures[key] = &failure{failureKey: key, count: 40 - i, example: "lagos"}
		}
		for i := range waits {
			f.waits = append(f.waits, fleetWait{kind: tko.KindDeployment, count: i + 1, text: "waiting", how: "tko deployment list"})
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
	f := &fleet{sites: fleetCounts{}, deployments: fleetCounts{}, failures: map[failureKey]*failure{}}
	var w fleetWaits
	f.addSite(tko.Site{ID: "s", AwaitedTemplate: "t", Stamp: tko.Stamp{Conditions: []tko.Condition{refs}}}, &w)
	f.addDeployment(waiting, &w)
	f.addDeployment(delivered, &w)
	f.waits = w.list()
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
	f := &fleet{sites: fleetCounts{}, deployments: fleetCounts{}, failures: map[failureKey]*failure{}}
	want := map[tko.State]int{}
	for name, conditions := range all {
		d := tko.Deployment{ID: tko.DeploymentID(name), Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 1, Conditions: conditions}}
		f.addDeployment(d, &fleetWaits{})
		f.addSite(tko.Site{Stamp: d.Stamp}, &fleetWaits{})
		want[d.Summary().State]++
	}
	value := f.value()
	for _, kind := range []string{"sites", "deployments"} {
		got, _ := value[kind].(map[string]any)
		for _, state := range tko.States() {
			if got[string(state)] != int64(want[state]) {
				t.Errorf("%s: %v %s, want %d", kind, got[string(state)], state, want[state])
			}
		}
		if got[unhealthy] != int64(2) || got["total"] != int64(len(all)) {
			t.Errorf("%s: %v", kind, got)
		}
	}
	if got := f.deployments.states(); got != "1 failing, 1 working, 2 unknown, 1 healthy" {
		t.Errorf("in words: %s", got)
	}
}
