package client

import (
	"context"
	"iter"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// HistoryOf streams the changes of the selected entities, newest first. An error comes
// last.
func (c *Client) HistoryOf(ctx context.Context, r tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	return rows(ctx, c, c.past.ListHistory, &tkopb.ListHistory{
		Select: wire.PastSelect.Write(r.Select), From: r.From.String(), To: r.To.String(), MaxCount: int32(min(max(r.Max, 0), 1<<31-1)),
	}, wire.HistoryEntry)
}

// DiffPast streams what differs between two moments, in groups of entities with equal
// differences. Values of Secrets are not shown. An error comes last.
func (c *Client) DiffPast(ctx context.Context, r tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	return rows(ctx, c, c.past.DiffPast, &tkopb.DiffPast{
		Select: wire.PastSelect.Write(r.Select), From: r.From.String(), To: r.To.String(), FromRevision: r.FromRevision, ToRevision: r.ToRevision,
	}, wire.PastGroup.ReadRow)
}

// RestorePast writes the selected entities as they were at a moment. Restoring many must
// be confirmed: see [tko.WithConfirmation]. After an error, the same restore continues.
func (c *Client) RestorePast(ctx context.Context, r tko.RestoreRequest) (tko.Restored, error) {
	return wire.Then(wire.Restored.Read)(call(ctx, c, c.past.RestorePast, &tkopb.RestorePast{
		Select: wire.PastSelect.Write(r.Select), AsOf: r.AsOf.String(), DryRun: r.DryRun, Confirm: wire.NewConfirm(ctx),
	}))
}
