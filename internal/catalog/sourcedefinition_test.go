package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// newDefining returns a world in which sources without a URL are invalid.
func newDefining(t *testing.T) *world {
	return newGuarded(t, catalog.Options{CheckSource: func(d tko.SourceDefinition) error {
		var spec map[string]any
		if err := json.Unmarshal(d.Spec, &spec); err != nil || spec["url"] == nil {
			return tko.Errorf(tko.ErrInvalid, "source %q has no url", d.Name)
		}
		return nil
	}})
}

func source(name, spec string) tko.SourceDefinition {
	return tko.SourceDefinition{Kind: tko.SourceKindGit, Name: name, Spec: []byte(spec)}
}

func (w *world) definitions() map[string]tko.SourceDefinition {
	w.t.Helper()
	found, err := w.SourceDefinitions(w.ctx, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	all := map[string]tko.SourceDefinition{}
	for _, d := range found.All {
		all[d.Name] = d
	}
	return all
}

// reconciled saves a source as the role gitops does, and returns the claim of its work.
func (w *world) reconciled(name string, registered bool, owns int) tko.WorkItem {
	w.t.Helper()
	status := tko.SourceStatus{Registered: registered}
	for i := range owns {
		status.Items = append(status.Items, tko.SourceItem{Kind: "site", Name: fmt.Sprint("s", i)})
	}
	claim := w.claimSource(name)
	if _, err := w.store.SaveSource(w.ctx, tko.Source{Name: name, Status: status}, claim); err != nil {
		w.t.Fatal(err)
	}
	return claim
}

// claimSource claims the work of a source, which must be enqueued if nothing else is.
func (w *world) claimSource(name string) tko.WorkItem {
	w.t.Helper()
	if err := w.store.EnqueueWork(w.ctx, tko.QueueGitOps, []string{name}, true); err != nil {
		w.t.Fatal(err)
	}
	items, err := w.ClaimWork(w.controller(), tko.ClaimWork{Queue: tko.QueueGitOps, Worker: "me", Max: 100, Lease: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.claims == nil {
		w.claims = map[string]tko.WorkItem{}
	}
	for _, item := range items {
		w.claims[item.Key] = item
	}
	if _, ok := w.claims[name]; !ok {
		w.t.Fatalf("there is no work for source %q", name)
	}
	return w.claims[name]
}

// controller returns the context of the role gitops.
func (w *world) controller() context.Context { return w.as("cert:gitops") }

func TestSourcesAreRegisteredAllOrNone(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	good, bad := source("a", `{"url": "x"}`), source("b", `{}`)
	for what, all := range map[string][]tko.SourceDefinition{
		"with one that is invalid": {good, bad}, "twice": {good, good}, "of an unknown kind": {good, {Kind: "Fleet", Name: "c", Spec: []byte(`{"url": "x"}`)}},
		"without any": nil, "with a reserved name": {source("site:x", `{"url": "x"}`)}, "without a name": {source("", `{"url": "x"}`)}, "that are very long": {source("l", `{"url": "`+strings.Repeat("x", 100_000)+`"}`)},
		"that are no JSON": {source("j", `url`)},
	} {
		_, err := w.RegisterSources(w.ctx, all, false)
		w.is("sources "+what, err, tko.ErrInvalid)
	}
	if _, err := w.RegisterSources(w.ctx, []tko.SourceDefinition{good}, true); err != nil || len(w.definitions()) != 0 {
		t.Errorf("refused sources, or a dry run, left %v, %v", w.definitions(), err)
	}
	results, err := w.RegisterSources(w.ctx, []tko.SourceDefinition{good, source("b", `{"url":  "y"}`)}, false)
	if err != nil || len(results) != 2 || !results[0].Created || !results[1].Changed || len(w.definitions()) != 2 {
		t.Fatalf("%+v, %v, %v", results, w.definitions(), err)
	}
	before, err := w.SourceDefinitions(w.ctx, 0)
	w.is("definitions", err, nil)
	results, err = w.RegisterSources(w.ctx, []tko.SourceDefinition{good, source("b", `{"url": "z"}`)}, false)
	if err != nil || results[0].Changed || !results[1].Changed || results[1].Created || string(w.definitions()["b"].Spec) != `{"url":"z"}` {
		t.Errorf("after a change: %+v, %v, %v", results, w.definitions(), err)
	}
	if now, err := w.SourceDefinitions(w.ctx, before.Version); err != nil || len(now.All) != 2 || now.Version == before.Version {
		t.Errorf("with an old version: %+v, %v", now, err)
	} else if same, err := w.SourceDefinitions(w.ctx, now.Version); err != nil || len(same.All) != 0 {
		t.Errorf("with the known version: %+v, %v", same, err)
	}
	w.claimSource("b") // its work is requested
	w.is("another kind", second(w.RegisterSources(w.ctx, []tko.SourceDefinition{{Kind: tko.SourceKindCatalog, Name: "a", Spec: good.Spec}}, false)), tko.ErrInvalid)
}

func second[T any](_ T, err error) error { return err }

func TestNumberOfRegisteredSourcesIsLimited(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	register := func(n int, length int) error {
		var all []tko.SourceDefinition
		for i := range n {
			all = append(all, source(fmt.Sprintf("s%d", i), `{"url": "`+strings.Repeat("x", length)+`"}`))
		}
		return second(w.RegisterSources(w.ctx, all, true))
	}
	w.is("very many", register(1001, 1), tko.ErrInvalid)
	w.is("very large ones", register(100, 60_000), tko.ErrInvalid)
	w.is("many", register(1000, 1), nil)
}

func TestNamesOfSourcesInSettingsAreNotTaken(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	w.reconciled("fleet", false, 3)
	d := source("fleet", `{"url": "x"}`)
	w.is("a name that the settings have", second(w.RegisterSources(w.ctx, []tko.SourceDefinition{d}, false)), tko.ErrConflict)
	w.is("its deletion", w.DeleteSource(w.ctx, "fleet", true), tko.ErrInvalid)
	d.TakeOver = true
	w.is("taking it over", second(w.RegisterSources(w.ctx, []tko.SourceDefinition{d}, false)), nil)
	d.TakeOver = false
	if results, err := w.RegisterSources(w.ctx, []tko.SourceDefinition{d}, false); err != nil || results[0].Changed || !w.definitions()["fleet"].TakeOver {
		t.Errorf("registered again: %+v, %v", results, err)
	}
	w.is("deleting what it takes over", w.DeleteSource(w.ctx, "fleet", false), tko.ErrInvalid) // it owns entities
}

func TestSourceWithEntitiesIsDeletedOnlyWithTheirNumber(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	_, err := w.RegisterSources(w.ctx, []tko.SourceDefinition{
		source("fleet", `{"url": "x"}`), source("kept", `{"url": "x", "prune": false}`),
		{Kind: tko.SourceKindCatalog, Name: "catalog", Spec: []byte(`{"url": "x"}`)},
		source("new", `{"url": "x"}`), source("empty", `{"url": "x"}`),
	}, false)
	w.is("register", err, nil)
	w.reconciled("kept", true, 2)
	w.reconciled("catalog", true, 2)
	empty := w.reconciled("empty", true, 0)
	claim := w.reconciled("fleet", true, 3)
	for what, ctx := range map[string]context.Context{"without a number": w.ctx, "with another number": tko.WithConfirmation(w.ctx, 2)} {
		w.is("deleting "+what, w.DeleteSource(ctx, "fleet", false), tko.ErrInvalid)
	}
	w.is("with a number that is kept", w.DeleteSource(tko.WithConfirmation(w.ctx, 2), "fleet", true), tko.ErrInvalid)
	w.is("one without pruning", w.DeleteSource(tko.WithConfirmation(w.ctx, 2), "kept", false), tko.ErrInvalid)
	w.is("a catalog", w.DeleteSource(tko.WithConfirmation(w.ctx, 2), "catalog", false), tko.ErrInvalid)
	w.is("one that there isn't", w.DeleteSource(w.ctx, "other", false), tko.ErrNotFound)
	for name, d := range w.definitions() {
		if d.Ending != nil {
			t.Errorf("a refused deletion of %s began", name)
		}
	}
	w.is("one that was never applied", w.DeleteSource(w.ctx, "new", false), nil)
	if _, there := w.definitions()["new"]; there {
		t.Error("a definition that was never applied stays")
	}
	w.is("one without entities", w.DeleteSource(w.ctx, "empty", false), nil)
	w.is("forgetting it", w.ForgetSource(w.controller(), "empty", empty), nil)
	w.is("with the number", w.DeleteSource(tko.WithAuthor(tko.WithConfirmation(w.ctx, 3), tko.Author{Why: "end of life"}), "fleet", false), nil)
	if d := w.definitions()["fleet"]; d.Ending == nil || *d.Ending != (tko.SourceEnding{Confirmed: 3}) || d.By.Why != "end of life" || d.Updated.IsZero() {
		t.Errorf("the definition is %+v", d)
	}
	w.is("registering it meanwhile", second(w.RegisterSources(w.ctx, []tko.SourceDefinition{source("fleet", `{"url": "x"}`)}, false)), tko.ErrConflict)
	w.is("forgetting the source", w.ForgetSource(w.controller(), "fleet", claim), nil)
	w.is("one that is kept", w.DeleteSource(w.ctx, "kept", true), nil)
	left := w.definitions()
	if len(left) != 2 || left["kept"].Ending == nil || !left["kept"].Ending.Keep || left["catalog"].Ending != nil {
		t.Errorf("there are %+v", left)
	}
}

func TestRegisteringSourcesNeedsItsRightAndIsAudited(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	for _, role := range access.Roles() {
		subject := "cert:" + string(role)
		w.bind(subject, role, access.Scope{})
		may := role == access.Admin || role == access.DefineRole
		_, err := w.RegisterSources(w.as(subject), []tko.SourceDefinition{source(string(role), `{"url": "x"}`)}, false)
		if (err == nil) != may {
			t.Errorf("%s registers: %v", role, err)
		}
		if err := w.DeleteSource(w.as(subject), string(access.Admin), true); (err == nil) != may && may == (role == access.Admin) {
			t.Errorf("%s deletes: %v", role, err)
		}
	}
	_, err := w.Bind(w.ctx, access.Binding{Subject: "cert:x", Role: access.DefineRole, Scope: emea})
	w.is("the right within a scope", err, tko.ErrInvalid)
	var lines []string
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Kind: "source"}) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := stored.Record()
		if err != nil {
			t.Fatal(err)
		}
		if r.Decision == audit.Allow {
			lines = append(lines, r.Subject+" "+r.Op+" "+r.ID)
		}
	}
	if got := strings.Join(lines, ", "); got != "cert:admin registered admin, cert:admin deleted admin, cert:define registered define" {
		t.Errorf("the audit log has %s", got)
	}
}
