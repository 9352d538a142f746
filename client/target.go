package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// TargetState returns the state that a target of the meta-scheduler saved for a
// site. A tko.ErrNotFound means that there is none.
func (c *Client) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	return wire.Then(wire.TargetState)(call(ctx, c, c.data.GetTargetState, &tkopb.GetTargetState{SiteId: string(site), Name: name}))
}

// SaveTargetState writes the state of a target, with the claim of the site's
// work, and returns its new version. A tko.ErrConflict means that the caller no
// longer holds the claim.
func (c *Client) SaveTargetState(ctx context.Context, s tko.TargetState, claim tko.WorkItem) (version int64, err error) {
	m, err := call(ctx, c, c.data.SaveTargetState, &tkopb.SaveTargetState{State: wire.NewTargetState(s), Claim: wire.NewClaim(claim, true)})
	return m.GetVersion(), err
}
