package client

import (
	"context"
	"iter"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// HistoryOf streams the changes of the selected entities, newest first. An error comes
// last.
func (c *Client) HistoryOf(ctx context.Context, r tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	return rows(ctx, c, c.past.ListHistory, &tkopb.ListHistory{
		Select: wire.NewPastSelect(r.Select), From: r.From.String(), To: r.To.String(), MaxCount: int32(min(max(r.Max, 0), 1<<31-1)),
	}, wire.HistoryEntry)
}

// DiffPast streams what differs between two moments, in groups of entities with equal
// differences. Values of Secrets are not shown. An error comes last.
func (c *Client) DiffPast(ctx context.Context, r tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	return rows(ctx, c, c.past.DiffPast, &tkopb.DiffPast{
		Select: wire.NewPastSelect(r.Select), From: r.From.String(), To: r.To.String(), FromRevision: r.FromRevision, ToRevision: r.ToRevision,
	}, wire.PastGroup)
}

// RestorePast writes the selected entities as they were at a moment. Restoring many must
// be confirmed: see [tko.WithConfirmation]. After an error, the same restore continues.
func (c *Client) RestorePast(ctx context.Context, r tko.RestoreRequest) (tko.Restored, error) {
	m, err := call(ctx, c, c.past.RestorePast, &tkopb.RestorePast{
		Select: wire.NewPastSelect(r.Select), AsOf: r.AsOf.String(), DryRun: r.DryRun, Confirm: wire.NewConfirm(ctx),
	})
	if err != nil {
		return tko.Restored{}, err
	}
	return tko.Restored{Position: m.GetPosition(), Created: int(m.GetCreated()), Changed: int(m.GetChanged()), Deleted: int(m.GetDeleted()), Same: int(m.GetSame())}, nil
}

// Retention returns which part of the past can be read.
func (c *Client) Retention(ctx context.Context) (tko.Retention, error) {
	m, err := callAgain(ctx, c, c.past.GetRetention, &tkopb.GetRetention{})
	if err != nil {
		return tko.Retention{}, err
	}
	r := tko.Retention{OldestPosition: m.GetOldestPosition(), NewestPosition: m.GetNewestPosition()}
	r.KeepChanges, r.KeepRevisions = time.Duration(m.GetKeepChanges())*time.Second, int(m.GetKeepRevisions())
	r.Changes, r.Bytes, r.DatabaseBytes = m.GetChanges(), m.GetBytes(), m.GetDatabaseBytes()
	r.OldestTime, r.NewestTime = wire.Time(m.GetOldestTime()), wire.Time(m.GetNewestTime())
	for _, p := range m.GetLonger() {
		r.Longer = append(r.Longer, tko.RetentionPolicy{
			Name: p.GetName(), Keep: time.Duration(p.GetKeep()) * time.Second, Deployments: p.GetDeployments(), Changes: p.GetChanges(), Bytes: p.GetBytes(),
		})
	}
	return r, nil
}
