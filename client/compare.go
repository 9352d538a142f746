package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// CompareSite returns the differences between the desired state of a site and its actual
// state. A meta-scheduler makes the comparison. ErrUnavailable if none does within the
// server's time limit.
func (c *Client) CompareSite(ctx context.Context, id tko.SiteID) (tko.SiteComparison, error) {
	return wire.Then(wire.SiteComparison.Read)(call(ctx, c, c.why.CompareSite, &tkopb.CompareSite{SiteId: string(id)}))
}
