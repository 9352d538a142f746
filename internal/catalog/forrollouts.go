package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/krm"
)

// forRollouts is the catalog as rollouts need it: see [service.Catalog].
type forRollouts struct {
	core     *core
	entities *Entities
	registry *Registry
}

func (f forRollouts) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	return f.entities.Deployment(ctx, id, revision)
}

func (f forRollouts) Root(ctx context.Context, deployment string) (string, error) {
	return f.core.gate.RootOf(ctx, deployment)
}

func (f forRollouts) Validated(ctx context.Context, r record.Record, pkg krm.Package) (record.Record, error) {
	return f.core.withPackage(ctx, nil, r, pkg, false)
}

func (f forRollouts) Register(ctx context.Context, rollouts *int64, r record.Record, resources int) (record.Outcome, error) {
	var reads *readSet
	if rollouts != nil {
		reads = &readSet{rollouts: rollouts}
	}
	return f.registry.register(ctx, reads, r, resources)
}

func (f forRollouts) PermitApproval(ctx context.Context, before record.Record, after *record.Record) error {
	return f.core.permitApproval(ctx, before, after)
}

func (f forRollouts) Freezes(ctx context.Context) ([]execute.Freeze, int64, error) {
	return f.core.holds.Freezes(ctx)
}
