package notify

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// whats returns what a selection tells of a change, and remembers it as a notifier does.
func whats(s *selection, c tko.SubscribedChange) (all []string) {
	t := newTally()
	s.change(c, t)
	for _, item := range t.items {
		all = append(all, item.What)
	}
	maps.Copy(s.told, t.told)
	return all
}

func condition(typ, status, reason string) tko.Condition {
	return tko.Condition{Type: typ, Status: status, Reason: reason, LastTransition: time.Unix(1000, 0)}
}

// With several filters, what one of them reported is not reported again because another one doesn't select it.
func TestFiltersDontForgetWhatOthersReported(t *testing.T) {
	t.Parallel()
	since := time.Unix(900, 0)
	conditions := newSelection(&Spec{About: []Filter{
		{Of: OfConditions, Conditions: []string{"Healthy=False"}},
		{Of: OfConditions, Conditions: []string{"Scheduled=False"}},
	}}, "uid", since, map[string]string{})
	sick := tko.SubscribedChange{Change: tko.Change{Kind: tko.KindDeployment, ID: "d", Op: tko.OpStatus}, Conditions: []tko.Condition{condition("Healthy", "False", "PodsFailed"), condition("Scheduled", "True", "Scheduled")}}
	if got := whats(conditions, sick); !slices.Equal(got, []string{"Healthy=False:PodsFailed"}) {
		t.Errorf("first, %v are reported", got)
	}
	for range 3 {
		if got := whats(conditions, sick); len(got) > 0 {
			t.Errorf("without a change of conditions, %v are reported", got)
		}
	}
	healthy := sick
	healthy.Conditions = []tko.Condition{condition("Healthy", "True", "Healthy")}
	if got := whats(conditions, healthy); len(got) > 0 {
		t.Errorf("of what no filter selects, %v are reported", got)
	}
	if got := whats(conditions, sick); len(got) != 1 {
		t.Errorf("when it fails again, %v are reported, want one", got)
	}

	rollouts := newSelection(&Spec{About: []Filter{
		{Of: OfRollouts, States: []string{"Paused"}}, {Of: OfRollouts, States: []string{"Completed"}},
	}}, "uid", since, map[string]string{})
	paused := tko.SubscribedChange{Change: tko.Change{Kind: tko.KindRollout, ID: "r", Op: tko.OpStatus}, Conditions: []tko.Condition{condition(tko.ConditionState, "True", "Paused")}}
	if got := whats(rollouts, paused); !slices.Equal(got, []string{"Paused"}) {
		t.Errorf("of a rollout, %v are reported", got)
	}
	if got := whats(rollouts, paused); len(got) > 0 {
		t.Errorf("of a rollout in the same state, %v are reported", got)
	}

	sources := newSelection(&Spec{About: []Filter{
		{Of: OfSources, Conditions: []string{"Ready=False"}}, {Of: OfSources, Conditions: []string{"Stalled=True"}},
	}}, "uid", since, map[string]string{})
	source := tko.Source{Name: "s"}
	source.Status.Conditions = []tko.Condition{condition("Ready", "False", "Refused")}
	for n, want := range []int{1, 0, 0} {
		tl := newTally()
		sources.sources([]tko.Source{source}, time.Now(), tl)
		maps.Copy(sources.told, tl.told)
		if len(tl.items) != want {
			t.Errorf("look %d at a source reports %d conditions, want %d", n, len(tl.items), want)
		}
	}
}

// An entity that is created again is another one: that it fails as the last one did is reported.
func TestConditionsOfANewEntityAreReportedAnew(t *testing.T) {
	t.Parallel()
	s := newSelection(&Spec{About: []Filter{{Of: OfConditions, Conditions: []string{"Healthy=False"}}}}, "uid", time.Unix(900, 0), map[string]string{"site/other x Healthy": "False:Lost"})
	sick := tko.SubscribedChange{Change: tko.Change{Kind: tko.KindSite, ID: "lagos", Op: tko.OpStatus}, Conditions: []tko.Condition{condition("Healthy", "False", "PodsFailed")}}
	other := sick
	other.ID, other.Conditions = "other x", []tko.Condition{condition("Healthy", "False", "Lost")}
	gone := func(c tko.SubscribedChange) tko.SubscribedChange {
		c.Op, c.Conditions = tko.OpDeleted, nil
		return c
	}
	if got := whats(s, other); len(got) > 0 {
		t.Errorf("of what was reported before, %v are reported", got)
	}
	for range 2 {
		if got := whats(s, sick); len(got) != 1 {
			t.Errorf("%v are reported, want one", got)
		}
		if got := whats(s, gone(sick)); len(got) > 0 {
			t.Errorf("of a deletion, %v are reported", got)
		}
	}
	whats(s, gone(other))
	if got := whats(s, other); len(got) != 1 {
		t.Errorf("after its deletion, %v are reported of another one with a space in its name, want one", got)
	}
}
