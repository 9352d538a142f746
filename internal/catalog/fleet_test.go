package catalog_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// countFleet counts what a caller may read, by reading each entity.
func (w *world) countFleet(subject string) tko.Fleet {
	w.t.Helper()
	sum := new(tko.FleetCount)
	sites, err := collect(w.Sites(w.as(subject), tko.SiteSelect{}, tko.ListOptions{}))
	w.is("sites", err, nil)
	for _, s := range sites {
		sum.AddSite(s, 1)
	}
	deployments, err := collect(w.Deployments(w.as(subject), tko.DeploymentSelect{}, tko.ListOptions{}))
	w.is("deployments", err, nil)
	for _, d := range deployments {
		sum.AddDeployment(d, 1)
	}
	return sum.Fleet()
}

// sameFleet compares fleets without when they were counted.
func (w *world) sameFleet(what string, got, want tko.Fleet) {
	w.t.Helper()
	got.Position, got.Exact, got.Time = want.Position, want.Exact, want.Time
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-counted +got): %s", what, diff)
	}
}

func newFleet(t *testing.T) *matrix {
	t.Helper()
	m := newMatrix(t)
	condition := func(kind tko.Kind, id, typ, status, reason string) {
		t.Helper()
		err := m.SetConditions(identity.With(m.ctx, identity.Controller(identity.RoleScheduler)), kind, id, []tko.Condition{{Type: typ, Status: status, Reason: reason, Message: "of " + id, ObservedRevision: 1, LastTransition: time.Now()}})
		m.is("condition", err, nil)
	}
	condition(tko.KindSite, "a/1", tko.ConditionScheduled, tko.ConditionFalse, "Unreachable")
	condition(tko.KindDeployment, string(m.inA), tko.ConditionHealthy, tko.ConditionFalse, "Crashed")
	condition(tko.KindDeployment, string(m.inB), tko.ConditionScheduled, tko.ConditionFalse, tko.ReasonStopped)
	m.create(tko.NewDeployment{Template: "a/t", Site: "a/1"})
	m.create(tko.NewDeployment{Template: "b/t"})
	return m
}

// Who may read everything gets the numbers that the store has at hand, and they are those of the
// entities.
func TestNumbersAtHandAreThoseOfTheEntities(t *testing.T) {
	t.Parallel()
	m := newFleet(t)
	fleet, ok, err := m.FleetAtHand(m.as("cert:root"))
	if err != nil || !ok || !fleet.Exact || fleet.Position != m.head() || fleet.Time.IsZero() {
		t.Errorf("the numbers are at hand %v, exact %v as of %d, %v", ok, fleet.Exact, fleet.Position, err)
	}
	want := m.countFleet("cert:root")
	m.sameFleet("at hand", fleet, want)
	if len(fleet.Failures) != 2 || fleet.Failures[0].Example == "" || len(fleet.Waits) == 0 || fleet.Deployments.Total != 4 {
		t.Errorf("the fleet is %+v", fleet)
	}
	fleet, err = m.Fleet(m.as("cert:root"), tko.FleetSelect{})
	if err != nil || !fleet.Exact {
		t.Errorf("the numbers at hand aren't used: exact %v, %v", fleet.Exact, err)
	}
	m.sameFleet("of everything", fleet, want)
}

// Who may read a part gets the numbers of that part, and nothing of the others: neither by their
// numbers nor by their failures.
func TestFleetIsWhatItsCallerMayRead(t *testing.T) {
	t.Parallel()
	m := newFleet(t)
	viewer := "cert:" + string(access.Viewer)
	if _, ok, err := m.FleetAtHand(m.as(viewer)); ok || err != nil {
		t.Errorf("the numbers of everything are shown to who may read a part: %v", err)
	}
	fleet, err := m.Fleet(m.as(viewer), tko.FleetSelect{})
	if err != nil || fleet.Exact || fleet.Sites.Total != 1 || fleet.Deployments.Total != 2 {
		t.Errorf("%d sites, %d deployments, %v", fleet.Sites.Total, fleet.Deployments.Total, err)
	}
	m.sameFleet("of a part", fleet, m.countFleet(viewer))
	if _, err := m.Fleet(m.as("cert:stranger"), tko.FleetSelect{}); err == nil {
		t.Error("a caller without rights gets numbers")
	}
	fleet, err = m.Fleet(m.as(viewer), tko.FleetSelect{Sites: []string{"b/**"}})
	if err != nil || fleet.Sites.Total != 0 || fleet.Deployments.Total != 0 {
		t.Errorf("of sites that it may not read: %d sites, %d deployments, %v", fleet.Sites.Total, fleet.Deployments.Total, err)
	}
}

// Filters limit the numbers to sites, and to the deployments at them.
func TestFleetOfSomeSites(t *testing.T) {
	t.Parallel()
	m := newFleet(t)
	for name, sel := range map[string]tko.FleetSelect{"by ID": {Sites: []string{"b/*"}}, "by metadata": {SiteMetadata: map[string]string{"tenant": "b"}}} {
		fleet, err := m.Fleet(m.as("cert:root"), sel)
		if err != nil || fleet.Sites.Total != 1 || fleet.Deployments.Total != 1 || fleet.Exact || fleet.Position != m.head() {
			t.Errorf("%s: %d sites, %d deployments, as of %d, exact %v, %v", name, fleet.Sites.Total, fleet.Deployments.Total, fleet.Position, fleet.Exact, err)
		}
	}
	if _, err := m.Fleet(m.as("cert:root"), tko.FleetSelect{SiteMetadata: map[string]string{"": "x"}}); err == nil {
		t.Error("a pattern that is none is accepted")
	}
}
