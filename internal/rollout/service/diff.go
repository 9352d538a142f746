package service

import (
	"context"
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// maxChangedRows is the maximum number of rows whose changes one request reads: each is
// planned again.
const maxChangedRows = 100

var errTooManyChanges = tko.Errorf(tko.ErrInvalid, "more than %d deployments match: name one deployment, or fewer sites, to read the changes", maxChangedRows)

// changesOf returns what a row of a plan changes, whether or not it was applied already.
func (s *RolloutPlans) changesOf(ctx context.Context, r record.Record, st record.RolloutState, row record.RolloutRow) ([]tko.RolloutChange, error) {
	types, mask, err := s.settings.Differ(ctx)
	if err != nil {
		return nil, err
	}
	before, after, err := s.packagesOf(ctx, r, st, row)
	if err != nil {
		return nil, err
	}
	return plan.Shown(plan.Lines(before, after, types, mask)), nil
}

// packagesOf returns the packages before and after a row; nil if there is none.
func (s *RolloutPlans) packagesOf(ctx context.Context, r record.Record, st record.RolloutState, row record.RolloutRow) (before, after krm.Package, err error) {
	if row.Target != 0 || row.Kind == plan.Delete || st.Undoes != "" {
		for _, one := range []struct {
			revision int64
			to       *krm.Package
		}{{row.Revision, &before}, {row.Target, &after}} {
			if one.revision == 0 {
				continue
			}
			d, err := s.catalog.Deployment(ctx, row.Deployment, one.revision)
			if err != nil {
				return nil, nil, err
			}
			*one.to = d.Package
		}
		if row.Target == 0 && row.Kind != plan.Delete {
			after = before
		}
		return before, after, nil
	}
	planner, ok := s.planner.(plan.Rower)
	if !ok {
		return nil, nil, errors.New("this server has no planner")
	}
	if r, err = s.reader.One(ctx, record.Fields{Package: true}, r.Key); err != nil {
		return nil, nil, err
	}
	sp, err := s.specOf(ctx, r, st)
	if err != nil {
		return nil, nil, err
	}
	draft, err := planner.Row(ctx, plan.Request{Rollout: st.ID, Spec: sp}, row.Row, row.Pins)
	if err != nil {
		return nil, nil, err
	}
	before, after = DraftPackages(draft)
	return before, after, nil
}

// DraftPackages returns the packages before and after a draft; nil if there is none. A draft
// with no package after it that isn't a deletion, such as a conflict, changes nothing.
func DraftPackages(d plan.Draft) (before, after krm.Package) {
	if d.BeforeState != nil {
		before = d.BeforeState.Deployment.Package
	}
	if d.AfterState != nil {
		after = d.AfterState.Deployment.Package
	} else if d.Kind != plan.Delete {
		after = before
	}
	return before, after
}
