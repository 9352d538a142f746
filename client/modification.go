package client

import (
	"context"
	"errors"
	"io"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Modifications returns the valid modification tokens, sorted by deployment,
// without the tokens themselves.
func (c *Client) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.data.ListModifications(c.outgoing(ctx), &tkopb.ListModifications{}, c.calls...)
	if err != nil {
		return nil, c.failed(err)
	}
	var open []tko.OpenModification
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return open, nil
		}
		if err != nil {
			return nil, c.failed(err)
		}
		open = append(open, wire.OpenModification(m))
	}
}

// BreakModification ends the modification token of a deployment. It returns a
// tko.ErrNotFound if there is none.
func (c *Client) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	m, err := call(ctx, c, c.data.BreakModification, &tkopb.BreakModification{DeploymentId: string(id)})
	if err != nil {
		return tko.OpenModification{}, err
	}
	return wire.OpenModification(m), nil
}
