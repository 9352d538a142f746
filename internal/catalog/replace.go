package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/hold"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The transaction that makes a deployment both prepared and approved also deletes
// the siblings that it replaces: the site runs either those or the replacement.
// All writes of deployments go through [rights.Authorizer.Commit], so this holds for each
// way to approve a deployment.

// A replacer commits what rights permit: with the replacements that it requires, unless a stop
// holds it, and through the gate.
type replacer struct {
	store record.Store
	holds *hold.Holds
	gate  *gate.Gate
	log   *slog.Logger
}

// maxReparented is the maximum number of children of replaced deployments that
// one transaction gives another parent.
const maxReparented = 10_000

// withReplaced returns writes, followed by the writes that their replacements
// require: deletions of replaced deployments, and new parents for the children
// of those.
func (s *replacer) withReplaced(ctx context.Context, writes []record.Write) ([]record.Write, error) {
	written := map[record.Key]bool{}
	taking := false
	for _, w := range writes {
		written[w.Record.Key] = true
		taking = taking || replacesNow(w)
	}
	if !taking {
		return writes, nil
	}
	all := slices.Clone(writes)
	for i := range writes {
		if !replacesNow(writes[i]) {
			continue
		}
		replaced, err := s.replaced(ctx, writes[i].Record)
		if err != nil {
			return nil, err
		}
		all[i].Record.Replaces, all[i].Record.Replaced = nil, replacedBy(writes[i].Record, replaced)
		for _, old := range replaced {
			if written[old.Key] {
				continue
			}
			written[old.Key] = true
			moves, err := s.reparentings(ctx, old, writes[i].Record.ID)
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

// maxReplaced is the maximum number of replaced deployments that a deployment has from the
// ones that it replaces, in addition to those.
const maxReplaced = 16

// replacedBy returns the deployments that r has replaced when it replaces old, the newest
// first: also those that they have replaced, whose objects may still be at the site.
func replacedBy(r record.Record, old []record.Record) []string {
	var direct, earlier []string
	for _, one := range old {
		direct, earlier = append(direct, one.ID), append(earlier, one.Replaced...)
	}
	earlier = slices.Concat(r.Replaced, earlier)
	all := slices.Concat(direct, earlier[:min(len(earlier), maxReplaced)])
	seen := map[string]bool{r.ID: true}
	return slices.DeleteFunc(all, func(id string) bool {
		had := seen[id]
		seen[id] = true
		return had
	})
}

// replacesNow reports whether a write makes a deployment replace others.
func replacesNow(w record.Write) bool {
	return w.Op == tko.OpWritten && len(w.Record.Replaces) > 0 && w.Record.Prepared && w.Record.Approved
}

// replaced returns the deployments that a deployment replaces, if they are
// still its siblings at the same site. A deployment that a user has moved
// elsewhere stays.
func (s *replacer) replaced(ctx context.Context, r record.Record) ([]record.Record, error) {
	keys := record.Keys(r.Replaces, func(id string) record.Key { return record.DeploymentKey(tko.DeploymentID(id)) })
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(old record.Record) bool {
		return old.Revision == 0 || old.ID == r.ID || old.Parent != r.Parent || old.Site != r.Site || old.Deleting()
	}), nil
}

// reparentings returns the writes that give the children of a deployment
// another parent.
func (s *replacer) reparentings(ctx context.Context, from record.Record, to string) ([]record.Write, error) {
	var moves []record.Write
	for child, err := range s.store.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindDeployment, Parent: from.ID, Limit: maxReparented + 1}) {
		if err != nil {
			return nil, err
		}
		if len(moves) == maxReparented {
			return nil, tko.Errorf(tko.ErrInvalid, "deployment %q can't replace deployment %q, which has more than %d children, the limit of one transaction: delete some of them first",
				to, from.ID, maxReparented)
		}
		child.Parent = to // the author stays, because the content doesn't change
		child.Author.Why = fmt.Sprintf("deployment %s was replaced by %s", from.ID, to)
		moves = append(moves, record.Write{Op: tko.OpWritten, Record: child, Expect: child.Revision})
	}
	return moves, nil
}

// maxReplacing is the maximum number of attempts to commit a replacement while
// the replaced deployments change.
const maxReplacing = 5

// commit commits writes and the replacements that they require, all or
// none, and returns the outcomes of the writes. The stops of book hold them.
func (s *replacer) commit(ctx context.Context, book *rights.Book, writes []record.Write) ([]record.Outcome, error) {
	for attempt := 1; ; attempt++ {
		all, err := s.withReplaced(ctx, writes)
		if err != nil {
			return nil, err
		}
		if err := s.holds.Check(ctx, book, all); err != nil {
			return nil, err
		}
		outcomes, err := s.gate.CommitGated(ctx, all)
		if len(all) > len(writes) && attempt < maxReplacing && (errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrNotFound)) {
			continue // a replaced deployment may have changed, or been deleted
		}
		if err != nil {
			return nil, err
		}
		if len(outcomes) != len(all) {
			return nil, errors.New("the number of outcomes that the store returned differs from the number of writes")
		}
		for i := len(writes); i < len(all); i++ {
			if all[i].Op == tko.OpDeleted {
				s.log.InfoContext(ctx, "replaced", "deployment", all[i].Record.ID, "why", all[i].Record.Author.Why, "who", rights.Author(ctx).Who)
			}
		}
		return outcomes[:len(writes)], nil
	}
}

// replacesOf returns the IDs of the deployments that a child replaces, sorted,
// without duplicates.
func replacesOf(child tko.NewChild) ([]string, error) {
	if len(child.Replaces) > maxReplaces {
		return nil, tko.Errorf(tko.ErrInvalid, "the child %q replaces %d deployments: use at most %d", child.Origin, len(child.Replaces), maxReplaces)
	}
	ids := map[string]bool{}
	for _, id := range child.Replaces {
		if !record.IsDeploymentID(id) {
			return nil, tko.Errorf(tko.ErrInvalid, "the child %q replaces %.40q, which is not the ID of a deployment", child.Origin, id)
		}
		ids[string(id)] = true
	}
	return slices.Sorted(maps.Keys(ids)), nil
}

// maxReplaces is the maximum number of deployments that one deployment
// replaces.
const maxReplaces = 100
