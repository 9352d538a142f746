package grpcapi

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// claimed returns a context whose changes depend on a claim, if there is one.
func claimed(ctx context.Context, m *tkopb.WorkItem) context.Context {
	if m == nil {
		return ctx
	}
	return tko.WithClaim(ctx, wire.Claim(m))
}

func (d *data) PutEntity(ctx context.Context, m *tkopb.PutEntity) (*tkopb.PutEntityResponse, error) {
	put, err := wire.PutEntity(m)
	if err != nil {
		return nil, err
	}
	result, err := d.backend.PutEntity(claimed(ctx, m.GetClaim()), put)
	return &tkopb.PutEntityResponse{
		Id: result.ID, Revision: result.Revision, Created: result.Created, Changed: result.Changed, Managed: result.Managed, Changes: result.Changes,
		ChangesTarget: result.ChangesTarget,
	}, err
}

func (d *data) RemoveEntity(ctx context.Context, m *tkopb.RemoveEntity) (*tkopb.DeleteResponse, error) {
	return deleted(d.backend.RemoveEntity(claimed(ctx, m.GetClaim()), tko.Kind(m.GetKind()), m.GetId(), m.GetDryRun()))
}

func (d *data) CallSites(ctx context.Context, m *tkopb.CallSites) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, d.backend.EnqueueSites(ctx, wire.IDs[tko.SiteID](m.GetSiteId()))
}

func (d *data) CallSources(ctx context.Context, m *tkopb.CallSources) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, d.backend.EnqueueSources(ctx, m.GetNames(), m.GetMissing(), m.GetApprove())
}

func (d *data) GetSource(ctx context.Context, m *tkopb.GetSource) (*tkopb.Source, error) {
	source, err := d.backend.Source(ctx, m.GetName())
	if errors.Is(err, tko.ErrNotFound) {
		source, err = d.formerTargetSource(ctx, m.GetName(), err)
	}
	if err != nil {
		return nil, err
	}
	if known := m.GetKnownVersion(); known != 0 && known == source.Version {
		return wire.Source.Write(tko.Source{Name: source.Name, Version: known, Approved: source.Approved, Enqueued: source.Enqueued, Updated: source.Updated, Reach: source.Reach}), nil
	}
	return wire.Source.Write(source), nil
}

func (d *data) ListSources(_ *emptypb.Empty, s grpc.ServerStreamingServer[tkopb.Source]) error {
	return sendAll(s, wire.Source.Write)(d.backend.Sources(s.Context()))
}

func (d *data) SaveSource(ctx context.Context, m *tkopb.SaveSource) (*tkopb.SaveSourceResponse, error) {
	source, claim := wire.Source.Read(m.GetSource()), wire.Claim(m.GetClaim())
	save := d.backend.SaveSource
	if claim.Queue == tko.QueueSchedule {
		save = d.saveFormerTargetSource
	}
	version, err := save(ctx, source, claim)
	if err != nil {
		return nil, err
	}
	return &tkopb.SaveSourceResponse{Version: version}, nil
}

func (d *data) ForgetSource(ctx context.Context, m *tkopb.ForgetSource) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, d.backend.ForgetSource(ctx, m.GetName(), wire.Claim(m.GetClaim()))
}
