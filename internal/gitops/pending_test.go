package gitops_test

import (
	"context"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
)

// A deployment whose creator died before it could write down its ID goes, too,
// when it has left the source; also if somebody else has changed it since.
func TestPendingDeploymentsLeave(t *testing.T) {
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
	p, err := plan.Make(t.Context(), c, nil, items, plan.Policy{Source: "fleet", Prune: true, Budget: plan.DefaultBudget})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Actions) != 2 || p.Actions[0].Verb != plan.Delete || len(p.Items) != 2 {
		t.Fatalf("planned are %+v with the inventory %+v; want that both go", p.Actions, p.Items)
	}
	if _, err := c.Deployment(t.Context(), tko.DeploymentID(made.ID), 0); err != nil {
		t.Errorf("after planning: %v", err)
	}
	var left []tko.SourceItem
	if _, err := p.Apply(t.Context(), c, "r", func(_ context.Context, items []tko.SourceItem) error {
		left = items
		return nil
	}); err != nil || len(left) != 0 {
		t.Errorf("after it the inventory has %v: %v", left, err)
	}
	for d, err := range c.Deployments(t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		t.Errorf("left is %s, %v", d.ID, err)
	}
}
