package grpcapi

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// A RolloutBackend implements tko.Rollouts.
type RolloutBackend interface { //nolint:interfacebloat // a method for each of the service
	RegisterRollout(ctx context.Context, r tko.Rollout) (revision int64, err error)
	DeleteRollout(ctx context.Context, id tko.RolloutID) error
	Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error)
	Rollouts(ctx context.Context, s tko.RolloutSelect, o tko.ListOptions) iter.Seq2[tko.Rollout, error]

	RolloutRows(ctx context.Context, s tko.RolloutRows) iter.Seq2[tko.RolloutRow, error]
	ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error)
	SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error)
	RecordBundle(ctx context.Context, id tko.SiteID) error
	SiteStagings(ctx context.Context, id tko.SiteID) ([]tko.SiteStaging, error)
	ReportSiteStaging(ctx context.Context, p tko.SiteStaging) error
	ProposeRollout(ctx context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error)
	AdvanceRollout(ctx context.Context, id tko.RolloutID) (again time.Duration, err error)
	RolloutMeasurements(ctx context.Context, id tko.RolloutID) ([]tko.RolloutMeasurement, error)
	ReportRolloutMeasurement(ctx context.Context, m tko.RolloutMeasurement) error
	RolloutTickets(ctx context.Context, id tko.RolloutID) ([]tko.RolloutTicket, error)
	ReportRolloutTicket(ctx context.Context, t tko.RolloutTicket) error
	RolloutEvidence(ctx context.Context, s tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error]
}

// rollouts implements tko.Rollouts on a backend.
type rollouts struct {
	tkopb.UnimplementedRolloutsServer

	backend Backend
	format  krm.Format
}

func (r *rollouts) RegisterRollout(ctx context.Context, m *tkopb.Rollout) (*tkopb.RegisterResponse, error) {
	rollout, err := wire.Rollout(m)
	if err != nil {
		return nil, err
	}
	rollout.Stamp = tko.Stamp{}
	return registered(r.backend.RegisterRollout(ctx, rollout))
}

func (r *rollouts) DeleteRollout(ctx context.Context, m *tkopb.RolloutID) (*tkopb.DeleteResponse, error) {
	return deleted(tko.Deleted{Count: 1}, r.backend.DeleteRollout(ctx, tko.RolloutID(m.GetRolloutId())))
}

func (r *rollouts) GetRollout(ctx context.Context, m *tkopb.GetRollout) (*tkopb.Rollout, error) {
	format, err := wire.Format(m.GetPreferredPackageFormat(), r.format)
	if err != nil {
		return nil, err
	}
	if ctx, err = past(ctx, m); err != nil {
		return nil, err
	}
	rollout, err := r.backend.Rollout(ctx, tko.RolloutID(m.GetRolloutId()), m.GetRevision())
	if err != nil {
		return nil, err
	}
	return wire.NewRollout(rollout, format)
}

func (r *rollouts) ListRollouts(m *tkopb.ListRollouts, s grpc.ServerStreamingServer[tkopb.Rollout]) error {
	format, err := wire.Format(m.GetPreferredPackageFormat(), r.format)
	if !m.GetWithPackages() {
		format, err = "", nil
	}
	if err != nil {
		return err
	}
	ctx, err := past(s.Context(), m)
	if err != nil {
		return err
	}
	sel := tko.RolloutSelect{IDs: m.GetRolloutIdPatterns(), Metadata: m.GetMetadataPatterns()}
	for rollout, err := range r.backend.Rollouts(ctx, sel, tko.ListOptions{Window: wire.Window(m.GetWindow()), Packages: m.GetWithPackages()}) {
		if err != nil {
			return err
		}
		row, err := wire.NewRollout(rollout, format)
		if err != nil {
			return err
		}
		if err := s.Send(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *rollouts) ListRolloutRows(m *tkopb.ListRolloutRows, s grpc.ServerStreamingServer[tkopb.RolloutRow]) error {
	return sendList(s, r.backend.RolloutRows(s.Context(), wire.RolloutRows.Read(m)), wire.RolloutRow.Write)
}

func (r *rollouts) AdvanceRollout(ctx context.Context, m *tkopb.RolloutID) (*tkopb.AdvanceRolloutResponse, error) {
	again, err := r.backend.AdvanceRollout(ctx, tko.RolloutID(m.GetRolloutId()))
	if err != nil || again < 0 {
		return &tkopb.AdvanceRolloutResponse{}, err
	}
	return &tkopb.AdvanceRolloutResponse{Again: durationpb.New(again)}, nil
}

func (r *rollouts) GetSiteHold(ctx context.Context, m *tkopb.GetSiteHold) (*tkopb.SiteHold, error) {
	if m.GetBundle() {
		if err := r.backend.RecordBundle(ctx, tko.SiteID(m.GetSiteId())); err != nil {
			return nil, err
		}
	}
	reason, err := r.backend.SiteHold(ctx, tko.SiteID(m.GetSiteId()))
	return &tkopb.SiteHold{Reason: reason, Recorded: m.GetBundle()}, err
}

func (r *rollouts) GetSiteStagings(ctx context.Context, m *tkopb.GetSiteStagings) (*tkopb.SiteStagings, error) {
	return wire.Then(wire.NewSiteStagings)(r.backend.SiteStagings(ctx, tko.SiteID(m.GetSiteId())))
}

func (r *rollouts) ReportSiteStaging(ctx context.Context, m *tkopb.SiteStaging) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.ReportSiteStaging(ctx, wire.SiteStaging.Read(m))
}

func (r *rollouts) GetReservedOrigins(ctx context.Context, m *tkopb.GetReservedOrigins) (*tkopb.ReservedOrigins, error) {
	return wire.Then(wire.NewReservedOrigins)(r.backend.ReservedOrigins(ctx, tko.DeploymentID(m.GetParentDeploymentId())))
}

func (r *rollouts) ProposeRollout(ctx context.Context, m *tkopb.ProposeRollout) (*tkopb.RolloutStatus, error) {
	pkg, err := wire.Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return nil, err
	}
	return wire.Then(wire.RolloutStatus.Write)(r.backend.ProposeRollout(ctx, tko.RolloutID(m.GetRolloutId()), pkg))
}

func (r *rollouts) GetRolloutMeasurements(ctx context.Context, m *tkopb.RolloutID) (*tkopb.RolloutMeasurements, error) {
	return wire.Then(wire.NewRolloutMeasurements)(r.backend.RolloutMeasurements(ctx, tko.RolloutID(m.GetRolloutId())))
}

func (r *rollouts) ReportRolloutMeasurement(ctx context.Context, m *tkopb.RolloutMeasurement) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.ReportRolloutMeasurement(ctx, wire.RolloutMeasurement.Read(m))
}

func (r *rollouts) GetRolloutTickets(ctx context.Context, m *tkopb.RolloutID) (*tkopb.RolloutTickets, error) {
	return wire.Then(wire.NewRolloutTickets)(r.backend.RolloutTickets(ctx, tko.RolloutID(m.GetRolloutId())))
}

func (r *rollouts) ReportRolloutTicket(ctx context.Context, m *tkopb.RolloutTicket) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, r.backend.ReportRolloutTicket(ctx, wire.RolloutTicket.Read(m))
}

func (r *rollouts) ListRolloutEvidence(m *tkopb.ListRolloutEvidence, s grpc.ServerStreamingServer[tkopb.RolloutEvidence]) error {
	return sendList(s, r.backend.RolloutEvidence(s.Context(), wire.RolloutEvidenceSelect.Read(m)), wire.RolloutEvidence.Write)
}
