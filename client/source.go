package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// PutEntity writes the whole of an entity, as it shall be, unless it is so
// already. It depends on the claim of work in the context, if there is one
// ([tko.WithClaim]).
func (c *Client) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	m, err := wire.NewPutEntity(p, c.options.PackageFormat)
	if err != nil {
		return tko.PutResult{}, err
	}
	m.Claim = wire.NewClaim(tko.ClaimOf(ctx))
	answer, err := callAgain(ctx, c, c.data.PutEntity, m)
	if err != nil {
		return tko.PutResult{}, err
	}
	return tko.PutResult{ID: answer.GetId(), Revision: answer.GetRevision(), Created: answer.GetCreated(), Changed: answer.GetChanged()}, nil
}

// RemoveEntity deletes an entity and what goes with it, or with dryRun says how
// many that are. An unknown one is a tko.ErrNotFound. It depends on the claim of
// work in the context, if there is one.
func (c *Client) RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	return deleted(call(ctx, c, c.data.RemoveEntity, &tkopb.RemoveEntity{
		Kind: string(kind), Id: id, DryRun: dryRun, Claim: wire.NewClaim(tko.ClaimOf(ctx)), Confirm: wire.NewConfirm(ctx),
	}))
}

// EnqueueSites calls for a look at sites, because of what was noticed there.
func (c *Client) EnqueueSites(ctx context.Context, ids []tko.SiteID) error {
	m := &tkopb.CallSites{SiteId: make([]string, len(ids))}
	for i, id := range ids {
		m.SiteId[i] = string(id)
	}
	_, err := callAgain(ctx, c, c.data.CallSites, m)
	return err
}

// EnqueueSources calls for a look at sources of GitOps; only at those that nobody
// has called for yet, if missing is set. approve, if not empty, approves the
// removal that the one source asks about, by its digest: a tko.ErrConflict says
// that it asks about something else by now.
func (c *Client) EnqueueSources(ctx context.Context, names []string, missing bool, approve string) error {
	_, err := callAgain(ctx, c, c.data.CallSources, &tkopb.CallSources{Names: names, Missing: missing, Approve: approve})
	return err
}

// Source answers a source of GitOps, with its state. An unknown one is a
// tko.ErrNotFound.
func (c *Client) Source(ctx context.Context, name string) (tko.Source, error) {
	return c.SourceUnless(ctx, name, 0)
}

// SourceUnless is Source; without status and state, if the version is the one
// that is known.
func (c *Client) SourceUnless(ctx context.Context, name string, known int64) (tko.Source, error) {
	m, err := callAgain(ctx, c, c.data.GetSource, &tkopb.GetSource{Name: name, KnownVersion: known})
	if err != nil {
		return tko.Source{}, err
	}
	return wire.Source(m), nil
}

// Sources answers the sources of GitOps by name, without their state.
func (c *Client) Sources(ctx context.Context) ([]tko.Source, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.data.ListSources(c.outgoing(ctx), &emptypb.Empty{}, c.calls...)
	if err != nil {
		return nil, c.failed(err)
	}
	var sources []tko.Source
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return sources, nil
		}
		if err != nil {
			return nil, c.failed(err)
		}
		sources = append(sources, wire.Source(m))
	}
}

// SaveSource writes a source of GitOps, by whoever holds the claim of its work,
// and answers its new version. A tko.ErrConflict says that somebody else does
// by now.
func (c *Client) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error) {
	answer, err := callAgain(ctx, c, c.data.SaveSource, &tkopb.SaveSource{Source: wire.NewSource(s), Claim: wire.NewClaim(claim, true)})
	return answer.GetVersion(), err
}

// ForgetSource removes a source of GitOps from the list and leaves what it
// owns. Errors as SaveSource.
func (c *Client) ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error {
	_, err := callAgain(ctx, c, c.data.ForgetSource, &tkopb.ForgetSource{Name: name, Claim: wire.NewClaim(claim, true)})
	return err
}
