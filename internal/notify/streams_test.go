package notify_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// rollout registers a rollout, or changes it.
func (w *world) rollout(id string, metadata map[string]string) {
	w.t.Helper()
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: tko.RolloutID(id), Metadata: metadata, Package: krm.Package{{
		"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": id},
		"spec": map[string]any{"edits": []any{map[string]any{"delete": map[string]any{}, "select": map[string]any{"parent": "p"}}}},
	}}}); err != nil {
		w.t.Fatal(err)
	}
}

// command plans or cancels a rollout: both change its state at once.
func (w *world) command(id, verb string) {
	w.t.Helper()
	if _, err := w.RolloutDo(w.ctx, tko.RolloutCommand{ID: tko.RolloutID(id), Verb: verb}); err != nil {
		w.t.Fatal(err)
	}
}

// items returns what messages told, each as "ID WHAT", in their order.
func (r *receiver) items() (all []string) {
	for _, one := range r.all() {
		for _, item := range one.message.Items {
			all = append(all, item.ID+" "+item.What)
		}
	}
	return all
}

func (r *receiver) waitForItems(t *testing.T, want ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%v, after %v,", want, r.items()), func() bool { return fmt.Sprint(r.items()) == fmt.Sprint(want) })
}

// stays checks that nothing more is reported for longer than events are grouped and sources are looked
// at.
func (r *receiver) stays(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(6 * time.Second)
	if got := r.items(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %v, want %v", got, want)
	}
}

// Each state of a rollout that a filter selects is reported once, also if several filters select
// different states, and whatever else of the rollout changes.
func TestStatesOfRolloutsAreReportedOnce(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, catalog.Options{}), newReceiver(t, nil)
	w.subscribe("waves", map[string]any{"about": []any{
		map[string]any{"of": "rollouts", "states": []any{"Planning"}},
		map[string]any{"of": "rollouts", "states": []any{"Cancelled"}, "metadata": map[string]any{"team": "core"}},
	}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.rollout("a", map[string]string{"team": "core"})
	w.rollout("b", map[string]string{"team": "edge"})
	w.command("a", "plan")
	r.waitForItems(t, "a Planning")
	w.command("a", "cancel")
	r.waitForItems(t, "a Planning", "a Cancelled")
	for range 3 { // it changes, and its state doesn't
		w.rollout("a", map[string]string{"team": "core", "time": time.Now().String()})
		time.Sleep(50 * time.Millisecond)
	}
	w.command("b", "cancel") // no filter selects it
	r.stays(t, "a Planning", "a Cancelled")

	// One that is deleted, and another one with its ID.
	if err := w.DeleteRollout(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	w.rollout("a", map[string]string{"team": "core"})
	w.command("a", "cancel")
	r.waitForItems(t, "a Planning", "a Cancelled", "a Cancelled")
}

// A world with sources.
func newSourced(t *testing.T) *world {
	t.Helper()
	return newWorld(t, catalog.Options{CheckSource: func(tko.SourceDefinition) error { return nil }})
}

func (w *world) source(name string, conditions ...string) {
	w.t.Helper()
	w.sourceAs(w.ctx, name, conditions...)
}

// sourceAs saves the conditions of a source, each as TYPE=STATUS:REASON, as a controller.
func (w *world) sourceAs(ctx context.Context, name string, conditions ...string) {
	w.t.Helper()
	if err := w.store.EnqueueWork(w.t.Context(), tko.QueueGitOps, []string{name}, true); err != nil { //nolint:contextcheck // by all rights
		w.t.Fatal(err)
	}
	var claim tko.WorkItem
	waitFor(w.t, "the claim", func() bool {
		items, err := w.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueueGitOps, Worker: "me", Max: 1, Lease: time.Minute})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(items) > 0 {
			claim = items[0]
		}
		return len(items) > 0 && claim.Key == name
	})
	one := tko.Source{Name: name}
	for _, text := range conditions {
		typ, rest, _ := strings.Cut(text, "=")
		status, reason, _ := strings.Cut(rest, ":")
		one.Status.Conditions = append(one.Status.Conditions, tko.Condition{Type: typ, Status: status, Reason: reason, Message: "because", LastTransition: time.Now()})
	}
	all, err := w.store.Sources(w.t.Context()) //nolint:contextcheck // by all rights
	if err != nil {
		w.t.Fatal(err)
	}
	for _, there := range all {
		if there.Name == name {
			one.Version = there.Version
		}
	}
	if _, err := w.SaveSource(ctx, one, claim); err != nil {
		w.t.Fatal(err)
	}
	if err := w.FinishWork(ctx, []tko.FinishedWork{{Item: claim, Outcome: tko.WorkDone}}); err != nil {
		w.t.Fatal(err)
	}
}

// A source that isn't ready is reported once, and when it is ready again; one that is ready from the
// beginning isn't.
func TestSourcesAreReportedWhenTheirReadinessChanges(t *testing.T) {
	t.Parallel()
	w, r := newSourced(t), newReceiver(t, nil)
	w.subscribe("git", map[string]any{"about": []any{
		map[string]any{"of": "sources", "ids": []any{"emea-*"}},
		map[string]any{"of": "sources", "conditions": []any{"Stalled=True"}},
	}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.source("emea-a", "Ready=True:Applied", "Stalled=False:Fine")
	w.source("apac-b", "Ready=False:Failed", "Stalled=False:Fine")
	r.stays(t)
	w.source("emea-a", "Ready=False:FetchFailed", "Stalled=False:Fine")
	r.waitForItems(t, "emea-a Ready=False")
	if item := r.all()[0].message.Items[0]; item.Of != "sources" || item.Kind != "source" || item.Message != "because" || item.Conditions[0].Reason != "FetchFailed" {
		t.Errorf("told %+v", item)
	}
	r.stays(t, "emea-a Ready=False") // the other filter doesn't select it, and forgets nothing
	w.source("emea-a", "Ready=True:Applied", "Stalled=False:Fine")
	r.waitForItems(t, "emea-a Ready=False", "emea-a Ready=True")
}

// Two filters that name different conditions don't tell the same one again and again.
func TestFiltersOfSourcesForgetNothingOfEachOther(t *testing.T) {
	t.Parallel()
	w, r := newSourced(t), newReceiver(t, nil)
	w.subscribe("git", map[string]any{"about": []any{
		map[string]any{"of": "sources", "conditions": []any{"Ready=False"}},
		map[string]any{"of": "sources", "conditions": []any{"Reconciling=False"}},
	}, "group": quick, "to": webhook(r)})
	w.run(w.notifier, w.Told())
	w.source("a", "Ready=False:Failed")
	r.waitForItems(t, "a Ready=False")
	r.stays(t, "a Ready=False")

	// A source that comes later with the name of one that is gone is another one.
	if err := w.store.EnqueueWork(w.ctx, tko.QueueGitOps, []string{"a"}, true); err != nil {
		t.Fatal(err)
	}
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueGitOps, Worker: "me", Max: 1, Lease: time.Minute})
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	if err := w.ForgetSource(w.ctx, "a", items[0]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(6 * time.Second)
	w.source("a", "Ready=False:Failed")
	r.waitForItems(t, "a Ready=False", "a Ready=False")
}

// An owner who may not read sources holds the subscription, and nothing is lost.
func TestSourcesNeedTheRightInspect(t *testing.T) {
	t.Parallel()
	w, r := newGuarded(t), newReceiver(t, nil)
	controller := w.as("cert:gitops")
	if _, err := w.Bind(w.ctx, access.Binding{Subject: "cert:gitops", Role: access.ControllerGitOps}); err != nil {
		t.Fatal(err)
	}
	subscribes := w.bind(access.SubscribeRole, access.Scope{})
	w.bind(access.CredentialRole, access.Scope{})
	w.bind(access.Viewer, access.Scope{SiteID: "emea/**"})
	ada := w.as("cert:ada")
	if err := w.subscribeAs(ada, "git", map[string]any{"about": []any{map[string]any{"of": "sources"}}, "group": quick, "to": webhook(r)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Unbind(w.ctx, subscribes.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1200 * time.Millisecond) // the age of cached rules
	w.run(w.notifier, w.Told())
	waitFor(t, "the owner is held", func() bool {
		text := w.condition("git", tko.ConditionAccepted)
		return strings.HasPrefix(text, "False OwnerHeld") && strings.Contains(text, "may not read sources")
	})
	w.sourceAs(controller, "a", "Ready=False:Failed")
	r.stays(t)
	w.bind(access.SubscribeRole, access.Scope{})
	r.waitForItems(t, "a Ready=False")
}
