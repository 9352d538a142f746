package catalog

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/krm"
)

// maxChangedRows is the maximum number of rows whose changes one request reads: each is
// planned again.
const maxChangedRows = 100

var errTooManyChanges = tko.Errorf(tko.ErrInvalid, "more than %d deployments match: name one deployment, or fewer sites, to read the changes", maxChangedRows)

// changesOf returns what a row of a plan changes, whether or not it was applied already.
func (s *RolloutPlans) changesOf(ctx context.Context, r Record, st RolloutState, row RolloutRow) ([]tko.RolloutChange, error) {
	rules, err := s.rulesFor(ctx, new(readSet))
	if err != nil {
		return nil, err
	}
	before, after, err := s.packagesOf(ctx, r, st, row)
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	var changes []tko.RolloutChange
	for _, l := range plan.Lines(before, after, rules.types(), key) {
		changes = append(changes, tko.RolloutChange(l))
	}
	return changes, nil
}

// packagesOf returns the packages before and after a row; nil if there is none.
func (s *RolloutPlans) packagesOf(ctx context.Context, r Record, st RolloutState, row RolloutRow) (before, after krm.Package, err error) {
	if row.Target != 0 || row.Kind == plan.Delete || st.Undoes != "" {
		for _, one := range []struct {
			revision int64
			to       *krm.Package
		}{{row.Revision, &before}, {row.Target, &after}} {
			if one.revision == 0 {
				continue
			}
			d, err := s.entities.Deployment(ctx, row.Deployment, one.revision)
			if err != nil {
				return nil, nil, err
			}
			*one.to = d.Package
		}
		return before, after, nil
	}
	planner, ok := s.planner.(plan.Rower)
	if !ok {
		return nil, nil, errors.New("this server has no planner")
	}
	if r, err = s.get(ctx, Fields{Package: true}, r.Key); err != nil {
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
	if draft.BeforeState != nil {
		before = draft.BeforeState.Deployment.Package
	}
	if draft.AfterState != nil {
		after = draft.AfterState.Deployment.Package
	}
	return before, after, nil
}
