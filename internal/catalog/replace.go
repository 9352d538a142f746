package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// A deployment that replaces siblings takes their place in the transaction that
// makes it prepared and approved: before it, the site runs what it ran, and after
// it, only what replaces that. Every way to write a deployment goes through
// [Service.commit], so there is no other way to approve one.

// maxMoved is how many children of deployments that are replaced one
// transaction hands over, at most.
const maxMoved = 10_000

// withReplaced returns writes with what those of them bring that take the place
// of other deployments: the deletions of these, and their children, which get
// the new deployment as their parent. The writes themselves come first.
func (s *Service) withReplaced(ctx context.Context, writes []Write) ([]Write, error) {
	written := map[Key]bool{}
	taking := false
	for _, w := range writes {
		written[w.Record.Key] = true
		taking = taking || takesPlace(w)
	}
	if !taking {
		return writes, nil
	}
	all := slices.Clone(writes)
	for i := range writes {
		if !takesPlace(writes[i]) {
			continue
		}
		replaced, err := s.replaced(ctx, writes[i].Record)
		if err != nil {
			return nil, err
		}
		all[i].Record.Replaces = nil
		for _, old := range replaced {
			if written[old.Key] {
				continue
			}
			written[old.Key] = true
			moves, err := s.moves(ctx, old, writes[i].Record.ID)
			if err != nil {
				return nil, err
			}
			for _, move := range moves {
				written[move.Record.Key] = true
			}
			deletion := deletion(ctx, old.Key)
			deletion.Expect, deletion.SingleStep = old.Revision, true
			deletion.Record.Author.Why = "replaced by deployment " + writes[i].Record.ID
			all = append(append(all, moves...), deletion)
		}
	}
	return all, nil
}

// takesPlace says whether a write makes a deployment take the place of others.
func takesPlace(w Write) bool {
	return w.Op == tko.OpWritten && len(w.Record.Replaces) > 0 && w.Record.Prepared && w.Record.Approved
}

// replaced returns those that a deployment replaces and that are still its
// siblings at the same site: what a user has moved elsewhere stays there.
func (s *Service) replaced(ctx context.Context, r Record) ([]Record, error) {
	keys := make([]Key, len(r.Replaces))
	for i, id := range r.Replaces {
		keys[i] = deploymentKey(tko.DeploymentID(id))
	}
	records, err := s.store.Get(ctx, Fields{}, keys...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(old Record) bool {
		return old.Revision == 0 || old.ID == r.ID || old.Parent != r.Parent || old.Site != r.Site || old.Deleting()
	}), nil
}

// reasonNotApproved is that of the Approved condition of what waits for an approval.
const reasonNotApproved = "WaitsForApproval"

// editedSince returns one of those whose place a deployment takes that another
// writer than that of the deployment has changed since the deployment was made:
// only an approval of the deployment by itself agrees to have that go. It has
// Revision 0 if there is none.
func (s *Service) editedSince(ctx context.Context, r Record) (Record, error) {
	replaced, err := s.replaced(ctx, r)
	if err != nil {
		return Record{}, err
	}
	for _, old := range replaced {
		if old.Updated.After(r.Created) && old.Author.Who != r.Author.Who {
			return old, nil
		}
	}
	return Record{}, nil
}

// moves are the writes that give the children of a deployment another parent.
func (s *Service) moves(ctx context.Context, from Record, to string) ([]Write, error) {
	var moves []Write
	for child, err := range s.store.List(ctx, Query{Kind: tko.KindDeployment, Parent: from.ID, Limit: maxMoved + 1}) {
		if err != nil {
			return nil, err
		}
		if len(moves) == maxMoved {
			return nil, tko.Errorf(tko.ErrInvalid, "deployment %q can't take the place of deployment %q: that has more than %d children, and one transaction hands over no more; delete some of them first",
				to, from.ID, maxMoved)
		}
		child.Parent = to // who wrote it last stays: nothing that it says changes
		child.Author.Why = fmt.Sprintf("deployment %s was replaced by %s", from.ID, to)
		moves = append(moves, Write{Op: tko.OpWritten, Record: child, Expect: child.Revision})
	}
	return moves, nil
}

// maxReplacing is how often a commit that replaces deployments is tried again
// because these changed.
const maxReplacing = 5

// commitReplacing commits writes with what they replace, all or none, and
// returns the outcomes of the writes.
func (s *Service) commitReplacing(ctx context.Context, writes []Write) ([]Outcome, error) {
	for attempt := 1; ; attempt++ {
		all, err := s.withReplaced(ctx, writes)
		if err != nil {
			return nil, err
		}
		outcomes, err := s.store.Commit(ctx, all...)
		if len(all) > len(writes) && attempt < maxReplacing && (errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrNotFound)) {
			continue // what is replaced may have changed, or gone
		}
		if err != nil {
			return nil, err
		}
		if len(outcomes) != len(all) {
			return nil, errors.New("the store returned another number of outcomes than it got writes")
		}
		for i := len(writes); i < len(all); i++ {
			if all[i].Op == tko.OpDeleted {
				s.log.InfoContext(ctx, "replaced", "deployment", all[i].Record.ID, "why", all[i].Record.Author.Why, "who", author(ctx).Who)
			}
		}
		return outcomes[:len(writes)], nil
	}
}

// DeleteDeploymentAt deletes a deployment and its descendants if it is at a
// revision: ErrConflict otherwise.
func (s *Service) DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error) {
	if revision == 0 {
		return s.DeleteDeployment(ctx, id)
	}
	if !isDeploymentID(id) {
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	}
	if revision < 0 {
		return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "the revision %d of deployment %q is negative: use 0 for any", revision, id)
	}
	w := deletion(ctx, deploymentKey(id))
	w.Expect = revision
	most, err := s.allowDeletion(ctx, w.Record.Key)
	if err != nil {
		return tko.Deleted{}, err
	}
	done := progress{most: most}
	more, err := s.deleteStep(ctx, []Write{w}, &done)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	case err != nil:
		return tko.Deleted{}, err
	}
	if err := s.deleteAll(ctx, more, &done); err != nil {
		return done.deleted(1), done.interrupted(err)
	}
	s.log.InfoContext(ctx, "deleted", "kind", tko.KindDeployment, "id", id, "descendants", done.descendants, "who", author(ctx).Who)
	return done.deleted(1), nil
}

// replacesOf are the IDs of what a child replaces, each once.
func replacesOf(child tko.NewChild) ([]string, error) {
	if len(child.Replaces) > maxReplaces {
		return nil, tko.Errorf(tko.ErrInvalid, "the child %q replaces %d deployments: use at most %d", child.Origin, len(child.Replaces), maxReplaces)
	}
	ids := map[string]bool{}
	for _, id := range child.Replaces {
		if !isDeploymentID(id) {
			return nil, tko.Errorf(tko.ErrInvalid, "the child %q replaces %.40q, which is no ID of a deployment", child.Origin, id)
		}
		ids[string(id)] = true
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// maxReplaces is how many deployments one replaces, at most.
const maxReplaces = 100
