package catalog_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// A messenger accepts all subscriptions, and sends nothing.
type messenger struct{}

func (messenger) Check(s tko.Subscription) (bool, error) {
	return strings.Contains(string(s.Spec), "audit"), nil
}
func (messenger) Uses(tko.Subscription) []leash.Use { return nil }
func (messenger) Status(tko.Subscription, []byte, int64) tko.SubscriptionStatus {
	return tko.SubscriptionStatus{}
}
func (messenger) Test(context.Context, tko.Subscription) (string, error) { return "id", nil }

func (w *world) subscriptions() map[string]tko.Subscription {
	w.t.Helper()
	all, err := w.Subscriptions(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]tko.Subscription{}
	for _, s := range all {
		found[s.Name] = s
	}
	return found
}

func newSubscribing(t *testing.T) *world {
	t.Helper()
	return newGuarded(t, catalog.Options{CheckSource: func(tko.SourceDefinition) error { return nil }, Notify: messenger{}})
}

// A repository declares subscriptions as it declares sources: with the rights of its owner.
func TestSubscriptionsAreDeclaredByRepositoriesOfOwnersWhoMay(t *testing.T) {
	t.Parallel()
	w := newSubscribing(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	w.bind("cert:ada", access.DefineRole, access.Scope{})
	w.is("register", second(w.RegisterSources(w.as("cert:ada"), []tko.SourceDefinition{source("parent", `{"allowSources": true}`), source("plain", `{}`)}, false)), nil)
	claim := w.claimSource("parent")
	declare := func(prune bool, names ...string) (tko.DeclaredSources, error) {
		d := tko.DeclareSources{Parent: "parent", Prune: prune}
		for _, name := range names {
			d.Definitions = append(d.Definitions, tko.Subscription{Name: name, Spec: []byte(`{"about": "x"}`)}.Declared())
		}
		return w.DeclareSources(w.controller(), d, claim)
	}
	w.is("an owner without the right", second(declare(false, "noc")), tko.ErrInvalid)
	w.bind("cert:ada", access.SubscribeRole, access.Scope{})
	w.is("an owner with the right", second(declare(false, "noc", "ops")), nil)
	if s := w.subscriptions()["noc"]; s.Parent != "parent" || s.Owner.Subject != "cert:ada" || s.UID == "" {
		t.Errorf("the subscription is %+v", s)
	}
	noc := tko.Subscription{Name: "noc", Spec: []byte(`{"about": "y"}`)}
	w.is("a user changes it", second(w.RegisterSubscriptions(w.ctx, []tko.Subscription{noc}, false)), tko.ErrConflict)
	w.is("a user deletes it", w.DeleteSubscription(w.ctx, "noc"), tko.ErrInvalid)
	audit := tko.DeclareSources{Parent: "parent", Definitions: []tko.SourceDefinition{tko.Subscription{Name: "log", Spec: []byte(`{"about": "audit"}`)}.Declared()}}
	w.is("of audit records", second(w.DeclareSources(w.controller(), audit, claim)), tko.ErrInvalid)
	done, err := declare(false, "ops")
	w.is("one that is no longer declared", err, nil)
	if !slices.Equal(done.Kept, []string{"subscription/noc"}) || len(w.subscriptions()) != 2 {
		t.Errorf("it stays: %+v", done)
	}
	w.is("a user takes it over", second(w.RegisterSubscriptions(w.ctx, []tko.Subscription{noc}, false)), nil)
	w.is("pruning", second(declare(true)), nil)
	if left := w.subscriptions(); len(left) != 1 || left["noc"].Parent != "" {
		t.Errorf("there are %+v", left)
	}
}

// Who changes a subscription owns it, and its cursor and the IDs of its messages stay.
func TestAChangedSubscriptionGoesOn(t *testing.T) {
	t.Parallel()
	w := newSubscribing(t)
	w.bind("cert:ada", access.SubscribeRole, access.Scope{})
	one := func(spec string) []tko.Subscription { return []tko.Subscription{{Name: "noc", Spec: []byte(spec)}} }
	results, err := w.RegisterSubscriptions(w.ctx, one(`{"a": 1}`), true)
	w.is("a dry run", err, nil)
	if len(w.subscriptions()) != 0 || !results[0].Created {
		t.Errorf("a dry run: %+v", results)
	}
	w.is("register", second(w.RegisterSubscriptions(w.ctx, one(`{"a": 1}`), false)), nil)
	first := w.subscriptions()["noc"]
	w.site("s", "")
	results, err = w.RegisterSubscriptions(w.ctx, one(`{"a":   1}`), false)
	w.is("the same", err, nil)
	if results[0].Changed {
		t.Error("the same is a change")
	}
	w.is("by another user", second(w.RegisterSubscriptions(w.as("cert:ada"), one(`{"a": 1}`), false)), nil)
	if s := w.subscriptions()["noc"]; s.UID != first.UID || s.Begin != first.Begin || s.Owner.Subject != "cert:ada" {
		t.Errorf("the subscription is %+v, and was %+v", s, first)
	}
	w.is("without the right", second(w.RegisterSubscriptions(w.as("cert:eve"), one(`{"a": 2}`), false)), tko.ErrDenied)
	w.is("a name with a space", second(w.RegisterSubscriptions(w.ctx, []tko.Subscription{{Name: "a b", Spec: []byte("{}")}}, false)), tko.ErrInvalid)
	w.is("test", second(w.TestSubscription(w.ctx, "noc")), nil)
	w.is("delete", w.DeleteSubscription(w.ctx, "noc"), nil)
	w.is("delete again", w.DeleteSubscription(w.ctx, "noc"), tko.ErrNotFound)
}
