package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// The approval of a deployment that is approved already approves the changes that
// its placements propose.
func TestApprovalApprovesProposedChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{Prepared: true, Approved: true})
	proposal := tko.Condition{Type: tko.ConditionPlaced, Status: tko.ConditionFalse, Reason: tko.ReasonChangeProposed, Message: "would create 1"}
	if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{proposal}); err != nil {
		t.Fatal(err)
	}
	claim := tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: 1e9}
	if items, err := w.ClaimWork(w.ctx, claim); err != nil || len(items) != 0 {
		t.Fatalf("%v, %v: want no work for a proposal without an approval", items, err)
	}
	for i, want := range []int{1, 0} {
		if got, err := w.ApproveDeployment(w.ctx, id); err != nil || got != want {
			t.Errorf("time %d: approved %d, %v: want %d", i+1, got, err, want)
		}
	}
	d := w.deployment(id)
	c := condition(d, tko.ConditionPlaced)
	if why := d.Stamp.Why; why != "approved what its placements propose" {
		t.Errorf("the reason of the revision is %q", why)
	}
	if d.Stamp.Revision != 2 || c.Reason != tko.ReasonChangeApproved || c.Message != proposal.Message || c.Status != tko.ConditionFalse {
		t.Errorf("at revision %d: %+v: want the approval as a revision, and on the condition", d.Stamp.Revision, c)
	}
	items, err := w.ClaimWork(w.ctx, claim)
	if err != nil || len(items) != 1 || items[0].Key != string(id) {
		t.Errorf("%v, %v: want the approval to be the preparer's work", items, err)
	}
}

// A number that is confirmed is that of the proposal's changes.
func TestApprovalOfAProposalConfirmsItsNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	pkg := krm.Package{{
		"apiVersion": "topology.nephio.org/v1alpha1", "kind": "Placement", "metadata": map[string]any{"name": "p"},
		"status": map[string]any{"proposal": map[string]any{"create": map[string]any{"count": int64(300)}, "delete": map[string]any{"count": int64(5)}}},
	}}
	id := w.create(tko.NewDeployment{Prepared: true, Approved: true, Merge: pkg})
	proposal := tko.Condition{Type: tko.ConditionPlaced, Status: tko.ConditionFalse, Reason: tko.ReasonChangeProposed, Message: "would create 300"}
	if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{proposal}); err != nil {
		t.Fatal(err)
	}
	for confirmed, want := range map[int]string{1: "propose 305 changes, but 1 were confirmed", 304: "confirm 305 to proceed", 3000: "confirm 305 to proceed"} {
		if _, err := w.ApproveDeployment(tko.WithConfirmation(w.ctx, confirmed), id); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", confirmed, err, want)
		}
	}
	if d := w.deployment(id); d.Stamp.Revision != 1 {
		t.Errorf("the deployment was changed, to revision %d", d.Stamp.Revision)
	}
	if got, err := w.ApproveDeployment(tko.WithConfirmation(w.ctx, 305), id); err != nil || got != 1 {
		t.Errorf("approved %d, %v", got, err)
	}
}

func TestChildrenHaveTheirOrigins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	parent := w.create(tko.NewDeployment{})
	ids, _, err := w.CreateChildren(w.ctx, tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Origin: "Placement/p/1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.deployment(ids[0]).Origin; got != "Placement/p/1" {
		t.Errorf("the origin of a child is %q", got)
	}
	if got := w.deployment(parent).Origin; got != "" {
		t.Errorf("the origin of what has none is %q", got)
	}
}

func TestChangesWakeTheQueuesThatTheyMayAffect(t *testing.T) {
	t.Parallel()
	rec := func(kind tko.Kind, revision int64) record.Record {
		return record.Record{Key: record.Key{Kind: kind, ID: "x"}, Revision: revision}
	}
	prepare := []string{tko.QueuePrepare}
	tests := map[string]struct {
		why           string
		before, after record.Record
		want          []string
	}{
		"a new site":       {why: "it may match", after: rec(tko.KindSite, 1), want: prepare},
		"a changed site":   {why: "it may match now, or no longer", before: rec(tko.KindSite, 1), after: rec(tko.KindSite, 2), want: prepare},
		"a deleted site":   {why: "it no longer matches", before: rec(tko.KindSite, 1), want: prepare},
		"a new template":   {why: "it may match", after: rec(tko.KindTemplate, 1), want: prepare},
		"another template": {why: "deployments keep the revision that they were made from", before: rec(tko.KindTemplate, 1), after: rec(tko.KindTemplate, 2)},
		"a deployment":     {why: "it has work of its own", after: rec(tko.KindDeployment, 1)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := record.QueuesToWake(test.before, test.after)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
		})
	}
}
