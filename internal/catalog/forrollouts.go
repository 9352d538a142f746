package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/hold"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/krm"
)

// forRollouts is the catalog as rollouts need it: see [service.Catalog].
type forRollouts struct {
	gate       *gate.Gate
	holds      *hold.Holds
	validation *validation
	approvals  *approvals
	entities   *Entities
	registry   *Registry
}

func (f forRollouts) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	return f.entities.Deployment(ctx, id, revision)
}

func (f forRollouts) Root(ctx context.Context, deployment string) (string, error) {
	return f.gate.RootOf(ctx, deployment)
}

func (f forRollouts) Validated(ctx context.Context, r record.Record, pkg krm.Package) (record.Record, error) {
	return f.validation.withPackage(ctx, nil, r, pkg, false)
}

func (f forRollouts) Register(ctx context.Context, rollouts *int64, r record.Record, resources int) (record.Outcome, error) {
	var reads *readSet
	if rollouts != nil {
		reads = &readSet{rollouts: rollouts}
	}
	return f.registry.register(ctx, reads, r, resources)
}

func (f forRollouts) PermitApproval(ctx context.Context, before record.Record, after *record.Record) error {
	return f.approvals.permitApproval(ctx, before, after)
}

func (f forRollouts) Freezes(ctx context.Context) ([]execute.Freeze, int64, error) {
	return f.holds.Freezes(ctx)
}
