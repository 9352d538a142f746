package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/krm"
)

// Rollouts are records like others. Each also has a state, a plan, and rows with their
// progress, which only this package writes. Every
// change of them is decided from a [record.RolloutView] and committed with its version: if
// anything about any rollout has changed since, it is decided again.

// A RolloutControl registers rollouts, reports how far they are, and does what users command.
type RolloutControl struct {
	*rolloutStore

	plans  *RolloutPlans
	runner *RolloutRunner
}

// RegisterRollout creates or replaces a rollout and returns its revision. Then the
// rollout controller plans it, unless it has been started: a started rollout keeps the
// revision that was planned until it is planned again.
func (s *RolloutControl) RegisterRollout(ctx context.Context, r tko.Rollout) (int64, error) {
	ctx, _, err := s.rights.Enter(ctx, tko.KindRollout, access.Create, access.Update)
	if err != nil {
		return 0, err
	}
	rec, err := s.rolloutRecord(ctx, r)
	if err != nil {
		return 0, err
	}
	outcome, err := s.catalog.Register(ctx, nil, rec, len(r.Package))
	return outcome.Revision, err
}

// Rollout returns a rollout with its package, as of a revision; 0 is the current one.
func (s *RolloutControl) Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error) {
	return rights.Read(ctx, s.rights, record.RolloutKey(id), revision, s.rolloutOf)
}

// Rollouts returns the selected rollouts, sorted by ID, all from one snapshot.
func (s *RolloutControl) Rollouts(ctx context.Context, sel tko.RolloutSelect, options tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	p := criteria.Parser{}
	query := p.Query(tko.KindRollout, options)
	query.Fields.Deployments, query.Fields.Counts = false, false
	query.IDs, query.Metadata = p.IDs("rollout ID", sel.IDs), p.Metadata("metadata", sel.Metadata)
	return rights.List(ctx, s.rights, query, errors.Join(p.Err, criteria.CheckCount(len(sel.IDs)+len(sel.Metadata))), s.rolloutOf)
}

// rolloutOf returns the rollout of a record, with its package if the record has it.
func (s *RolloutControl) rolloutOf(c *rights.Caller, r record.Record) (tko.Rollout, error) {
	pkg, err := record.PackageOf(r)
	e := record.RolloutOf(r)
	e.Metadata, e.Stamp.Conditions, e.Package = maps.Clone(e.Metadata), slices.Clone(e.Stamp.Conditions), s.rights.Redact(c, r, pkg)
	return e, err
}

// removeRollout deletes a rollout that isn't in progress, with its plans. What it
// changed can't be undone any more.
func (s *RolloutControl) removeRollout(ctx context.Context, key record.Key, require record.Requirement, dryRun bool) (record.Record, tko.Deleted, error) {
	require.Present = true
	ctx, _, err := s.rights.Enter(ctx, tko.KindRollout, access.Delete)
	if err != nil {
		return record.Record{}, tko.Deleted{}, err
	}
	var r record.Record
	err = record.Retry(ctx, func() error {
		var v record.RolloutView
		if r, v, err = s.viewRollout(ctx, tko.RolloutID(key.ID), record.RowFilter{}, access.Delete); err != nil {
			return record.Final(err)
		}
		if err := require.Check(key, r); err != nil {
			return record.Final(err)
		}
		if _, _, err := execute.Allow(execute.Rollout{ID: key.ID, State: v.State.State}, execute.CommandDelete); err != nil {
			return record.Final(err)
		}
		if v.State.Settling {
			return record.Final(tko.Errorf(tko.ErrConflict, "rollout %q: deployments that it changed are not healthy yet, or sites still end its pulls of images: wait, waive them, or undo it", key.ID))
		}
		for _, o := range v.Active {
			if o.Undoes == key.ID && o.State.Active() {
				return record.Final(tko.Errorf(tko.ErrConflict, "rollout %q is undone by rollout %q: wait until that one is done", key.ID, o.ID))
			}
		}
		if dryRun {
			return nil
		}
		w := record.Write{Op: tko.OpDeleted, Record: record.Record{Key: key, Author: rights.Author(ctx)}, Expect: r.Revision, Rollout: &record.RolloutWrite{Expect: v.Version, Forget: []string{key.ID}}}
		_, err = s.rights.Commit(ctx, w)
		return err
	})
	return r, tko.Deleted{Count: 1}, err
}

// removeRollouts deletes rollouts: all that exist, or none if one can't be deleted now.
func (s *RolloutControl) removeRollouts(ctx context.Context, ids []string, require record.Requirement, dryRun bool) (tko.Deleted, error) {
	done := tko.Deleted{}
	for _, dry := range []bool{true, false} {
		if dryRun && !dry {
			break
		}
		done.Count = 0
		for _, id := range ids {
			_, deleted, err := s.removeRollout(ctx, record.Key{Kind: tko.KindRollout, ID: id}, require, dry)
			if errors.Is(err, tko.ErrNotFound) {
				continue
			}
			if err != nil {
				return done, err
			}
			done.Count += deleted.Count
		}
	}
	return done, nil
}

// DeleteRollout deletes a rollout that isn't in progress.
func (s *RolloutControl) DeleteRollout(ctx context.Context, id tko.RolloutID) error {
	_, _, err := s.removeRollout(ctx, record.RolloutKey(id), record.Requirement{}, false)
	return err
}

// placementRollouts is the prefix of the IDs of the rollouts that placements propose.
const placementRollouts = "placement/"

// maxProposed limits the rollouts of one placement that are done and not deleted.
const maxProposed = 1000

// ProposeRollout registers a rollout for a placement, or replaces one that isn't started,
// and returns its state. If the rollout with the ID is done, the ID gets a number. One
// that a user undid or cancelled stays, as long as the changes are the same. If another
// placement of the same topology has a rollout that isn't done, that one is returned, and
// nothing is registered.
func (s *RolloutControl) ProposeRollout(ctx context.Context, id tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Prepare)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	if !strings.HasPrefix(string(id), placementRollouts) {
		return tko.RolloutStatus{}, tko.Errorf(tko.ErrInvalid, "rollout %q: the IDs of the rollouts of placements begin with placement/", id)
	}
	if c.IsUnnamed() || c.IsHeld() {
		if err := s.rights.Refuse(ctx, c, tko.KindRollout, string(id), access.Create); err != nil {
			return tko.RolloutStatus{}, err
		}
	}
	ctx = rights.WithAllRights(ctx, c) // the preparer may write these rollouts, and no others
	var status tko.RolloutStatus
	err = record.Retry(ctx, func() error {
		status, err = s.propose(ctx, id, pkg)
		return err
	})
	return status, err
}

// propose is ProposeRollout once. The registration is decided from the version of the
// rollouts that was read first: if another one was registered meanwhile, perhaps of the same
// topology, the commit fails with a *StaleError, which is an ErrConflict.
func (s *RolloutControl) propose(ctx context.Context, base tko.RolloutID, pkg krm.Package) (tko.RolloutStatus, error) {
	id := base
	for n := 2; n <= maxProposed; n++ {
		rec, err := s.rolloutRecord(ctx, tko.Rollout{ID: id, Package: pkg})
		if err != nil {
			return tko.RolloutStatus{}, err
		}
		r, v, err := s.viewRollout(ctx, id, record.RowFilter{})
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return tko.RolloutStatus{}, err
		}
		if err != nil { // the placement has none that isn't done, and its topology may
			if open, found, err := s.openOfRoot(ctx, base); found || err != nil {
				return open, err
			}
		}
		same := err == nil && r.Digest == rec.Digest
		switch state := v.State.State; {
		case err != nil, !same && (state == execute.Draft || state == execute.Planning || state == execute.Planned):
			if _, err := s.catalog.Register(ctx, &v.Version, rec, len(pkg)); err != nil {
				return tko.RolloutStatus{}, err
			}
			return tko.RolloutStatus{ID: id, State: string(execute.Draft)}, nil
		case state == execute.Done, !same && (state == execute.Undone || state == execute.Cancelled && !v.State.Settling):
			id = tko.RolloutID(fmt.Sprintf("%s-%d", base, n))
		default:
			return tko.RolloutStatus{ID: id, State: string(state), Reason: v.State.Reason.Message}, nil
		}
	}
	return tko.RolloutStatus{}, tko.Errorf(tko.ErrInvalid, "there are %d rollouts %s-…: delete those that are done", maxProposed, base)
}

// openOfRoot returns a rollout that isn't done, of another placement of the same topology,
// nested ones included: one at a time changes what is derived from one root.
func (s *RolloutControl) openOfRoot(ctx context.Context, id tko.RolloutID) (open tko.RolloutStatus, found bool, err error) {
	parentOf := func(id string) string {
		parent, _, _ := strings.Cut(strings.TrimPrefix(id, placementRollouts), "/")
		return parent
	}
	root, err := s.catalog.Root(ctx, parentOf(string(id)))
	if err != nil {
		return open, false, err
	}
	pattern, err := tko.ParsePattern(placementRollouts + "**")
	if err != nil {
		return open, false, err
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindRollout, IDs: []tko.Pattern{pattern}, Scope: access.ScopeAll, Limit: -1}) {
		if err != nil {
			return open, false, err
		}
		state := tko.FindCondition(r.Conditions, tko.ConditionState)
		switch {
		case strings.HasPrefix(r.ID, string(id)):
			continue
		case state != nil && slices.Contains([]execute.State{execute.Done, execute.Undone, execute.Cancelled}, execute.State(state.Reason)):
			continue
		}
		other, err := s.catalog.Root(ctx, parentOf(r.ID))
		if err != nil {
			return open, false, err
		}
		if other == root {
			open = tko.RolloutStatus{ID: tko.RolloutID(r.ID), State: string(execute.Draft)}
			if state != nil {
				open.State = state.Reason
			}
			return open, true, nil
		}
	}
	return open, false, nil
}

// ReservedOrigins returns the origins of the children of a deployment that rollouts
// deleted and can create again, with the rollouts: placements don't create them.
func (s *RolloutControl) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	if _, _, err := s.rights.Enter(ctx, "", access.Prepare); err != nil {
		return nil, err
	}
	return s.store.ReservedOrigins(ctx, parent)
}
