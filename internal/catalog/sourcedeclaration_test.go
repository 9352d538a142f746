package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
)

// The role gitops declares sources only for a source whose work it holds, and whose
// registered definition allows it. It needs no right define.
func TestSourcesAreDeclaredWithTheClaimOfAParentThatAllowsIt(t *testing.T) {
	t.Parallel()
	w := newDefining(t)
	w.bind("cert:gitops", access.ControllerGitOps, access.Scope{})
	_, err := w.RegisterSources(w.ctx, []tko.SourceDefinition{source("parent", `{"url": "x", "allowSources": true}`), source("plain", `{"url": "x"}`)}, false)
	w.is("register", err, nil)
	claim := w.claimSource("parent")
	declare := func(parent string, claim tko.WorkItem, names ...string) error {
		d := tko.DeclareSources{Parent: parent}
		for _, name := range names {
			d.Definitions = append(d.Definitions, source(name, `{"url": "y"}`))
		}
		return second(w.DeclareSources(w.controller(), d, claim))
	}
	w.is("without the right", second(w.DeclareSources(w.ctx, tko.DeclareSources{Parent: "parent"}, claim)), tko.ErrDenied)
	w.is("with the claim of another source", declare("parent", w.claimSource("plain"), "a"), tko.ErrInvalid)
	w.is("with a claim that is lost", declare("parent", tko.WorkItem{Queue: tko.QueueGitOps, Key: "parent", Claim: "old"}, "a"), tko.ErrConflict)
	w.is("of a source without permission", declare("plain", w.claims["plain"], "a"), tko.ErrInvalid)
	w.is("a name that users have", declare("parent", claim, "a", "plain"), tko.ErrInvalid)
	w.is("its own name", declare("parent", claim, "a", "parent"), tko.ErrInvalid)
	if len(w.definitions()) != 2 {
		t.Fatalf("refused requests declared %v", w.definitions())
	}
	w.is("declare", declare("parent", claim, "a", "b"), nil)
	w.is("below a declared one", declare("a", w.claimSource("a"), "c"), tko.ErrInvalid)
	w.reconciled("a", true, 3)
	d := tko.DeclareSources{Parent: "parent", Prune: true, DryRun: true}
	done, err := w.DeclareSources(w.controller(), d, claim)
	w.is("a dry run", err, nil)
	if !slices.Equal(done.Removed, []string{"a", "b"}) || done.Owned != 2 || len(w.definitions()) != 4 || w.definitions()["a"].Ending != nil {
		t.Errorf("a dry run: %+v, %v", done, w.definitions())
	}
	d.DryRun = false
	w.is("prune", second(w.DeclareSources(w.controller(), d, claim)), nil)
	left := w.definitions()
	if _, there := left["b"]; there || left["a"].Ending == nil || *left["a"].Ending != (tko.SourceEnding{Keep: true}) {
		t.Errorf("one that was applied keeps its entities, another is gone at once: %+v", left)
	}
	var ops []string
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Kind: "source", Subject: "cert:gitops"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r, err := stored.Record(); err == nil && r.Decision == audit.Allow {
			ops = append(ops, r.ID+" "+r.Op)
		}
	}
	if got := strings.Join(ops, ", "); got != "a declared by parent, b declared by parent, a undeclared by parent, b undeclared by parent" {
		t.Errorf("the audit log has %s", got)
	}
}
