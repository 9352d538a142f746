package gitops_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// A deployment whose creator stopped before it stored the ID is removed when its
// manifest is, also if another client has changed it since.
func TestPendingDeploymentsAreRemovedWithTheirManifests(t *testing.T) {
	t.Parallel()
	c := data(t)
	origin := plan.OriginOf("fleet", "made")
	made, err := c.PutEntity(t.Context(), tko.Put{Kind: tko.KindDeployment, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	items := []tko.SourceItem{
		{Kind: string(tko.KindDeployment), Name: "made", Pending: true},
		{Kind: string(tko.KindDeployment), Name: "never", Pending: true},
	}
	p, err := plan.Make(t.Context(), c, nil, items, plan.Policy{Source: "fleet", Prune: true, Budget: prune.Default})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Actions) != 2 || p.Actions[0].Verb != plan.Delete || len(p.Items) != 2 {
		t.Fatalf("the actions are %+v with the inventory %+v; want that both deployments are removed", p.Actions, p.Items)
	}
	if _, err := c.Deployment(t.Context(), tko.DeploymentID(made.ID), 0); err != nil {
		t.Errorf("after planning, the deployment is gone: %v", err)
	}
	var inventory []tko.SourceItem
	if _, err := p.Apply(t.Context(), c, "r", func(_ context.Context, items []tko.SourceItem) error {
		inventory = items
		return nil
	}); err != nil || len(inventory) != 0 {
		t.Errorf("after Apply the inventory has %v: %v", inventory, err)
	}
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		t.Errorf("deployment %s is left, %v", d.ID, err)
	}
}

// A removal that is approved or within the budget deletes exactly as many descendants
// as the plan counted, whatever their number, and fails if there are more.
func TestRemovalsDeleteNoMoreDescendantsThanPlanned(t *testing.T) {
	t.Parallel()
	c := data(t)
	origin := plan.OriginOf("fleet", "top")
	top, err := c.PutEntity(t.Context(), tko.Put{Kind: tko.KindDeployment, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	grow := func(from, to int) {
		t.Helper()
		children := tko.NewChildren{Parent: tko.DeploymentID(top.ID)}
		for i := from; i < to; i++ {
			children.Children = append(children.Children, tko.NewChild{Origin: strconv.Itoa(i)})
		}
		if _, _, err := c.CreateChildren(t.Context(), children); err != nil {
			t.Fatal(err)
		}
	}
	checkLeft := func(want int) {
		t.Helper()
		n := 0
		for _, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != want {
			t.Errorf("%d deployments are left, want %d", n, want)
		}
	}
	grow(0, 150)
	if _, err := c.DeleteDeployment(t.Context(), tko.DeploymentID(top.ID)); !errors.Is(err, tko.ErrInvalid) {
		t.Fatalf("a deletion of 150 descendants without confirmation returned %v, want ErrInvalid", err)
	}
	items := []tko.SourceItem{{Kind: string(tko.KindDeployment), Name: "top", ID: top.ID}}
	planned := func() *plan.Plan {
		t.Helper()
		policy := plan.Policy{Source: "fleet", Prune: true, Budget: prune.Default}
		p, err := plan.Make(t.Context(), c, nil, items, policy)
		if err == nil && p.Asks != "" {
			policy.Approve = p.Asks
			p, err = plan.Make(t.Context(), c, nil, items, policy)
		}
		if err != nil || len(p.Actions) != 1 {
			t.Fatalf("the plan is %+v, %v; want one action", p, err)
		}
		return p
	}
	save := func(context.Context, []tko.SourceItem) error { return nil }
	p := planned()
	grow(150, 151)
	if _, err := p.Apply(t.Context(), c, "r", save); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("Apply with more descendants than planned returned %v, want ErrConflict", err)
	}
	checkLeft(152)
	if _, err := planned().Apply(t.Context(), c, "r", save); err != nil {
		t.Error(err)
	}
	checkLeft(0)
}
