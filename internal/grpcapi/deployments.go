package grpcapi

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

func (d *data) CreateDeployment(ctx context.Context, m *tkopb.CreateDeployment) (*tkopb.CreateDeploymentResponse, error) {
	dep, err := wire.CreateDeployment(m)
	if err != nil {
		return nil, err
	}
	id, err := d.backend.CreateDeployment(ctx, dep)
	if err != nil {
		return nil, err
	}
	return &tkopb.CreateDeploymentResponse{Created: true, DeploymentId: string(id)}, nil
}

func (d *data) CreateChildren(ctx context.Context, m *tkopb.CreateChildren) (*tkopb.CreateChildrenResponse, error) {
	children, err := wire.CreateChildren(m)
	if err != nil {
		return nil, err
	}
	ids, created, err := d.backend.CreateChildren(ctx, children)
	if err != nil {
		return nil, err
	}
	return wire.NewCreateChildrenResponse(ids, created), nil
}

func (d *data) ProvisionSite(ctx context.Context, m *tkopb.ProvisionSite) (*tkopb.ProvisionSiteResponse, error) {
	site, err := wire.ProvisionSite(m)
	if err != nil {
		return nil, err
	}
	id, created, err := d.backend.ProvisionSite(ctx, site)
	if err != nil {
		return nil, err
	}
	return &tkopb.ProvisionSiteResponse{SiteId: string(id), Created: created}, nil
}

func (d *data) StartDeploymentModification(ctx context.Context, m *tkopb.StartDeploymentModification) (*tkopb.StartDeploymentModificationResponse, error) {
	format, err := wire.Format(m.GetPreferredPackageFormat(), d.format)
	if err != nil {
		return nil, err
	}
	modification, err := d.backend.StartModification(ctx, tko.DeploymentID(m.GetDeploymentId()))
	if err != nil {
		return nil, err
	}
	return wire.NewModification(modification, format)
}

func (d *data) EndDeploymentModification(ctx context.Context, m *tkopb.EndDeploymentModification) (*tkopb.EndDeploymentModificationResponse, error) {
	p, err := wire.Package(m.GetPackageFormat(), m.GetPackage())
	if err != nil {
		return nil, err
	}
	id, revision, err := d.backend.EndModification(ctx, m.GetModificationToken(), p)
	if err != nil {
		return nil, err
	}
	return &tkopb.EndDeploymentModificationResponse{Modified: true, DeploymentId: string(id), Revision: revision}, nil
}

func (d *data) CancelDeploymentModification(ctx context.Context, m *tkopb.CancelDeploymentModification) (*tkopb.CancelDeploymentModificationResponse, error) {
	if err := d.backend.CancelModification(ctx, m.GetModificationToken()); err != nil {
		return nil, err
	}
	return &tkopb.CancelDeploymentModificationResponse{Cancelled: true}, nil
}

func (d *data) ListModifications(_ *tkopb.ListModifications, s grpc.ServerStreamingServer[tkopb.Modification]) error {
	open, err := d.backend.Modifications(s.Context())
	if err != nil {
		return err
	}
	for _, m := range open {
		if err := s.Send(wire.NewOpenModification(m)); err != nil {
			return err
		}
	}
	return nil
}

func (d *data) BreakModification(ctx context.Context, m *tkopb.BreakModification) (*tkopb.Modification, error) {
	broken, err := d.backend.BreakModification(ctx, tko.DeploymentID(m.GetDeploymentId()))
	if err != nil {
		return nil, err
	}
	return wire.NewOpenModification(broken), nil
}

func (d *data) CommitDeployment(ctx context.Context, m *tkopb.CommitDeployment) (*tkopb.CommitDeploymentResponse, error) {
	commit, err := wire.CommitDeployment(m)
	if err != nil {
		return nil, err
	}
	revision, err := d.backend.CommitDeployment(ctx, commit)
	if err != nil {
		return nil, err
	}
	return &tkopb.CommitDeploymentResponse{Revision: revision}, nil
}

func (d *data) ApproveDeployments(ctx context.Context, m *tkopb.ApproveDeployments) (*tkopb.ApproveDeploymentsResponse, error) {
	approved, err := d.approve(ctx, m)
	if err != nil {
		return nil, err
	}
	return &tkopb.ApproveDeploymentsResponse{Approved: uint64(max(approved, 0))}, nil
}

// approve refuses a message with neither an ID nor a selection: an empty
// message must not approve everything.
func (d *data) approve(ctx context.Context, m *tkopb.ApproveDeployments) (int, error) {
	id := tko.DeploymentID(m.GetDeploymentId())
	switch {
	case id != "" && m.GetSelect() != nil:
		return 0, tko.Errorf(tko.ErrInvalid, "approve: there is a deployment ID and a selection: give one of them")
	case id != "":
		return d.backend.ApproveDeployment(ctx, id)
	case m.GetSelect() == nil:
		return 0, tko.Errorf(tko.ErrInvalid, "approve: there is neither a deployment ID nor a selection: give one of them")
	default:
		return d.backend.ApproveDeployments(ctx, wire.DeploymentSelect(m.GetSelect()), m.GetSelect().GetDryRun())
	}
}
