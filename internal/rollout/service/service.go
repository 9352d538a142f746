// Package service decides about rollouts: it registers, plans, starts, advances and undoes them,
// and reports how far they are. What it needs of the catalog whose deployments they change is
// the interface [Catalog]; who may do what is decided by package rights.
package service

import (
	"context"
	"log/slog"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// Reason is what the reason of a change begins with that a rollout makes; the quoted name of
// the rollout follows.
const Reason = "rollout "

// A Catalog is what rollouts need of the catalog whose deployments they change. The context
// of each call has its caller.
type Catalog interface {
	// Deployment returns a deployment with its package, as of a revision that the caller may
	// read; 0 is the current one.
	Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error)
	// Root returns the farthest ancestor of a deployment: its topology.
	Root(ctx context.Context, deployment string) (string, error)
	// Validated returns a record with a package, which it validates.
	Validated(ctx context.Context, r record.Record, pkg krm.Package) (record.Record, error)
	// Register writes a rollout's record, whose package has a number of resources. If rollouts
	// isn't nil, it is an ErrConflict if that isn't the version of all rollouts any more.
	Register(ctx context.Context, rollouts *int64, r record.Record, resources int) (record.Outcome, error)
	// PermitApproval decides about a change that makes a deployment approved. It may leave the
	// deployment unapproved.
	PermitApproval(ctx context.Context, before record.Record, after *record.Record) error
	// Freezes ends the freezes that are over, and returns the others, the suspension of sites
	// included, and the version of the rules that they are part of.
	Freezes(ctx context.Context) (freezes []execute.Freeze, rules int64, err error)
}

// Settings are how rollouts decide, and by what.
type Settings struct {
	Access rights.Mode
	// CheckFunction returns an ErrInvalid if this server doesn't run a KRM function, as its
	// image names it. If nil, all are accepted.
	CheckFunction func(image string) error
	// Differ returns what packages are compared by: types, and a random key that masks
	// confidential values.
	Differ  func(ctx context.Context) (threeway.Types, []byte, error)
	Moments *history.Moments // the past of the catalog
	Log     *slog.Logger
}

// Parts are the parts of a catalog that decide about rollouts.
type Parts struct {
	Control *RolloutControl
	Plans   *RolloutPlans
	Runner  *RolloutRunner
	Keeper  *Keeper
}

// New returns the parts for rollouts on a store. Callers enter and commit through the authorizer.
func New(authorizer *rights.Authorizer, store record.Store, catalog Catalog, settings Settings) Parts {
	rollouts := &rolloutStore{rights: authorizer, store: store, reader: record.Lookup{Store: store}, catalog: catalog, settings: settings}
	plans := &RolloutPlans{rolloutStore: rollouts, moments: settings.Moments}
	runner := &RolloutRunner{rolloutStore: rollouts, plans: plans}
	control := &RolloutControl{rolloutStore: rollouts, plans: plans, runner: runner}
	return Parts{Control: control, Plans: plans, Runner: runner, Keeper: &Keeper{control: control}}
}

// A Keeper keeps the records of rollouts for the other parts of a catalog. The callers of its
// methods have entered the catalog.
type Keeper struct{ control *RolloutControl }

// RecordOf derives and validates the record of a rollout.
func (k *Keeper) RecordOf(ctx context.Context, r tko.Rollout) (record.Record, error) {
	return k.control.rolloutRecord(ctx, r)
}

// Remove deletes a rollout that isn't in progress, with its plans.
func (k *Keeper) Remove(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, tko.Deleted, error) {
	return k.control.removeRollout(ctx, key, require, dryRun)
}

// RemoveAll deletes rollouts: all that exist, or none if one can't be deleted now.
func (k *Keeper) RemoveAll(ctx context.Context, ids []string, require record.Requirement, dryRun bool) (tko.Deleted, error) {
	return k.control.removeRollouts(ctx, ids, require, dryRun)
}

// Planner returns what makes plans; nil before [RolloutPlans.PlanWith].
func (k *Keeper) Planner() plan.Planner { return k.control.plans.planner }
