package client

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// PutEntity writes the desired state of a whole entity, unless nothing would
// change. It depends on the claim of work in the context, if there is one
// ([tko.WithClaim]).
func (c *Client) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	m, err := wire.NewPutEntity(p, c.options.PackageFormat)
	if err != nil {
		return tko.PutResult{}, err
	}
	m.Details = wire.NewDetails(ctx, p.Details)
	m.Claim = wire.NewClaim(tko.ClaimOf(ctx))
	response, err := call(ctx, c, c.data.PutEntity, m)
	if err != nil {
		return tko.PutResult{}, err
	}
	return tko.PutResult{
		ID: response.GetId(), Revision: response.GetRevision(), Created: response.GetCreated(), Changed: response.GetChanged(),
		Managed: response.GetManaged(), Changes: response.GetChanges(), ChangesTarget: response.GetChangesTarget(),
	}, nil
}

// RemoveEntity deletes an entity and its descendants; with dryRun it only
// counts them. An unknown entity is a tko.ErrNotFound. It depends on the claim
// of work in the context, if there is one.
func (c *Client) RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	return deleted(call(ctx, c, c.data.RemoveEntity, &tkopb.RemoveEntity{
		Kind: string(kind), Id: id, DryRun: dryRun, Claim: wire.NewClaim(tko.ClaimOf(ctx)), Confirm: wire.NewConfirm(ctx),
	}))
}

// EnqueueSites requests a reconciliation of sites, because of changes that were
// observed there.
func (c *Client) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	_, err := call(ctx, c, c.data.CallSites, &tkopb.CallSites{SiteId: wire.Texts(ids)})
	return err
}

// EnqueueSources requests a reconciliation of GitOps sources; if missing is
// set, only of those for which none is requested yet. approve, if not empty,
// approves the pending removal of the only source, by its digest: a
// tko.ErrConflict if another removal is pending.
func (c *Client) EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error {
	_, err := call(ctx, c, c.data.CallSources, &tkopb.CallSources{Names: names, Missing: missing, Approve: approve})
	return err
}

// Source returns a GitOps source with its state. An unknown source is a
// tko.ErrNotFound.
func (c *Client) Source(ctx context.Context, name string) (tko.Source, error) {
	return c.SourceUnless(ctx, name, 0)
}

// SourceUnless is Source, without status and state if the version is the known
// one.
func (c *Client) SourceUnless(ctx context.Context, name string, known int64) (tko.Source, error) {
	return wire.Then(wire.Source.Read)(call(ctx, c, c.data.GetSource, &tkopb.GetSource{Name: name, KnownVersion: known}))
}

// Sources returns the GitOps sources by name, without their state.
func (c *Client) Sources(ctx context.Context) ([]tko.Source, error) {
	return collect(rows(ctx, c, c.data.ListSources, &emptypb.Empty{}, wire.Source.ReadRow))
}

// SaveSource saves a GitOps source, and returns its new version. It returns a
// tko.ErrConflict if the caller no longer holds the claim of its work.
func (c *Client) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error) {
	response, err := call(ctx, c, c.data.SaveSource, &tkopb.SaveSource{Source: wire.Source.Write(s), Claim: wire.NewClaim(claim, true)})
	return response.GetVersion(), err
}

// ForgetSource removes a GitOps source from the list; its entities stay. Errors
// as for SaveSource.
func (c *Client) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	_, err := call(ctx, c, c.data.ForgetSource, &tkopb.ForgetSource{Name: name, Claim: wire.NewClaim(claim, true)})
	return err
}
