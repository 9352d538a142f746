package grpcapi

import (
	"context"

	"google.golang.org/protobuf/proto"

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
	return &tkopb.CreateDeploymentResponse{Created: true, DeploymentId: string(id)}, err
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

func (d *data) ResolveSite(ctx context.Context, m *tkopb.ResolveSite) (*tkopb.ResolveSiteResponse, error) {
	waits, err := d.backend.ResolveSite(ctx, tko.SiteID(m.GetSiteId()))
	if err != nil {
		return nil, err
	}
	return &tkopb.ResolveSiteResponse{Waits: waits}, nil
}

func (d *data) StartDeploymentModification(ctx context.Context, m *tkopb.StartDeploymentModification) (*tkopb.StartDeploymentModificationResponse, error) {
	format, err := wire.Format(m.GetPreferredPackageFormat(), d.format)
	if err != nil {
		return nil, err
	}
	if m.GetValidity() != nil {
		validity, err := wire.Duration("validity of the token", m.GetValidity())
		if err != nil {
			return nil, err
		}
		ctx = tko.WithModificationTime(ctx, validity)
	}
	modification, err := d.encoder.StartEncodedModification(ctx, tko.DeploymentID(m.GetDeploymentId()), format)
	if err != nil {
		return nil, err
	}
	return wire.NewModification(modification, format), nil
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
	return &tkopb.CancelDeploymentModificationResponse{Cancelled: true}, d.backend.CancelModification(ctx, m.GetModificationToken())
}

func (d *data) CommitDeployment(ctx context.Context, m *tkopb.CommitDeployment) (*tkopb.CommitDeploymentResponse, error) {
	commit, err := wire.CommitDeployment(m)
	if err != nil {
		return nil, err
	}
	revision, err := d.backend.CommitDeployment(ctx, commit)
	return &tkopb.CommitDeploymentResponse{Revision: revision}, err
}

func (d *data) CommitDeployments(ctx context.Context, m *tkopb.CommitDeployments) (*tkopb.CommitDeploymentsResponse, error) {
	commits, err := wire.CommitDeployments(m)
	if err != nil {
		return nil, err
	}
	revisions, err := d.backend.CommitDeployments(ctx, commits)
	return &tkopb.CommitDeploymentsResponse{Revisions: revisions}, err
}

// maxBatchBytes is the size of the packages after which a batch of deployments
// ends: clients accept responses of 4 MiB.
const maxBatchBytes = 1 << 20

func (d *data) GetDeployments(ctx context.Context, m *tkopb.GetDeployments) (*tkopb.GetDeploymentsResponse, error) {
	format, err := wire.Format(m.GetPreferredPackageFormat(), d.format)
	if err != nil {
		return nil, err
	}
	deployments, err := d.backend.DeploymentsByID(ctx, wire.IDs[tko.DeploymentID](m.GetDeploymentIds()))
	if err != nil {
		return nil, err
	}
	response := &tkopb.GetDeploymentsResponse{}
	for size := 0; len(deployments) > 0; deployments = deployments[1:] {
		one, err := wire.NewDeployment(deployments[0], format)
		if err != nil {
			return nil, err
		}
		size += proto.Size(one)
		if size > maxBatchBytes {
			break
		}
		response.Deployments = append(response.Deployments, one)
	}
	return response, nil
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
