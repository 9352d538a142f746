package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// SetConditions replaces conditions of a site or deployment, by type.
func (c *Client) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	_, err := callAgain(ctx, c, c.data.SetConditions, &tkopb.SetConditions{
		Kind:       string(kind),
		Id:         id,
		Conditions: wire.NewConditions(conditions),
	})
	return err
}

// ClaimWork waits for work and claims it. Nothing when the time to wait is
// over.
func (c *Client) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	timeout := c.options.Timeout
	if timeout > 0 {
		timeout += claim.Wait
	}
	answer, err := callAgainFor(ctx, c, timeout, c.data.ClaimWork, wire.NewClaimWork(claim))
	if err != nil {
		return nil, err
	}
	return wire.WorkItems(answer.GetItems()), nil
}

// RenewWork extends leases, and answers the items whose lease still is the
// caller's.
func (c *Client) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	answer, err := callAgain(ctx, c, c.data.RenewWork, wire.NewRenewWork(items, lease))
	if err != nil {
		return nil, err
	}
	return wire.WorkItems(answer.GetItems()), nil
}

// FinishWork ends claims. Those that are no longer the caller's are passed
// over.
func (c *Client) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	m, err := wire.NewFinishWork(items)
	if err != nil {
		return err
	}
	_, err = callAgain(ctx, c, c.data.FinishWork, m)
	return err
}

// Watch streams the changes after a position in the change log, of the given
// kinds or of all, and then those that happen, until the context is done or
// the caller leaves the loop. A negative position is from now on. It is one
// stream that doesn't resume by itself: it ends with an error when the server
// goes away (ErrUnavailable: watch again from the last position seen) or no
// longer keeps the changes after the position (tko.ErrGone: list again).
func (c *Client) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	m := &tkopb.WatchChanges{After: after}
	for _, kind := range kinds {
		m.Kinds = append(m.Kinds, string(kind))
	}
	return func(yield func(tko.Change, error) bool) {
		// Not again, even if nothing came: what "now" was is lost with the stream.
		_, err := once(ctx, c, c.data.WatchChanges, m, func(s grpc.ServerStreamingClient[tkopb.Change]) (more bool, err error) {
			m, err := s.Recv()
			return err == nil && yield(wire.Change(m), nil), err
		})
		if err != nil {
			yield(tko.Change{}, err)
		}
	}
}
