package cli

import (
	"bytes"
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
			f.waits = append(f.waits, fleetWait{count: i + 1, text: "waiting", how: "tko deployment list"})
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
	f := &fleet{sites: fleetCounts{}, deployments: fleetCounts{}, failures: map[failureKey]*failure{}}
	want := map[tko.State]int{}
	for name, conditions := range all {
		d := tko.Deployment{ID: tko.DeploymentID(name), Site: "s", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 1, Conditions: conditions}}
		f.addDeployment(d, &fleetWaits{})
		f.addSite(tko.Site{Stamp: d.Stamp})
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
