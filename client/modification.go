package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Modifications returns the valid modification tokens, sorted by deployment,
// without the tokens themselves.
func (c *Client) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	return collect(rows(ctx, c, c.data.ListModifications, &tkopb.ListModifications{}, wire.OpenModification.ReadRow))
}

// BreakModification ends the modification token of a deployment. It returns a
// tko.ErrNotFound if there is none.
func (c *Client) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	return wire.Then(wire.OpenModification.Read)(call(ctx, c, c.data.BreakModification, &tkopb.BreakModification{DeploymentId: string(id)}))
}
