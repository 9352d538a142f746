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

// SetConditions replaces conditions of a site, deployment or plugin, by type.
func (c *Client) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	_, err := call(ctx, c, c.data.SetConditions, &tkopb.SetConditions{
		Kind:       string(kind),
		Id:         id,
		Conditions: wire.NewConditions(conditions),
	})
	return err
}

// ClaimWork waits for work and claims it. It returns no items when the time to
// wait is over.
func (c *Client) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, error) {
	timeout := c.options.Timeout
	if timeout > 0 {
		timeout += claim.Wait
	}
	response, err := callFor(ctx, c, timeout, c.data.ClaimWork, wire.NewClaimWork(claim))
	return wire.WorkItems(response.GetItems()), err
}

// RenewWork extends leases, and returns the items whose leases the caller still
// holds.
func (c *Client) RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error) {
	response, err := call(ctx, c, c.data.RenewWork, wire.NewRenewWork(items, lease))
	return wire.WorkItems(response.GetItems()), err
}

// FinishWork ends claims. It ignores those that the caller no longer holds.
func (c *Client) FinishWork(ctx context.Context, items []tko.FinishedWork) error {
	m, err := wire.NewFinishWork(items)
	if err != nil {
		return err
	}
	_, err = call(ctx, c, c.data.FinishWork, m)
	return err
}

// Watch streams the changes after a position in the change log, of the given
// kinds or of all, and then new ones, until the context is done or the caller
// breaks out of the loop. A negative position streams only new ones. The stream
// doesn't resume by itself: it ends with an error if the server becomes
// unavailable (ErrUnavailable: watch again from the last position seen), or if
// changes after the position are no longer retained (tko.ErrGone: list again).
func (c *Client) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return c.watch(ctx, &tkopb.WatchChanges{After: after, Kinds: wire.Texts(kinds)})
}

// WatchNewest is Watch, and begins with the newest changes that there are, at most n of all kinds. The position is that of the newest
// change, for servers of earlier versions, which count changes by their positions.
func (c *Client) WatchNewest(ctx context.Context, position int64, n uint32, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return c.watch(ctx, &tkopb.WatchChanges{After: max(0, position-int64(n)), Newest: n, Kinds: wire.Texts(kinds)})
}

func (c *Client) watch(ctx context.Context, m *tkopb.WatchChanges) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		// Don't repeat the call, even if nothing was received: the position of "now" is lost.
		_, err := once(ctx, c, c.data.WatchChanges, m, func(s grpc.ServerStreamingClient[tkopb.Change]) (more bool, err error) {
			m, err := s.Recv()
			return err == nil && yield(wire.Change(m), nil), err
		})
		if err != nil {
			yield(tko.Change{}, err)
		}
	}
}
