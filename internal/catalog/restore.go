package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// maxRestored is the maximum number of entities of one restore: their IDs are in
// memory.
const maxRestored = 100_000

// RestorePast writes the selected entities as they were at a moment, each as a new
// revision that names the moment: entities that were deleted since are created again,
// and those that were created since are deleted. Entities are selected by what they
// were then or are now. A restore that exceeds the limits of [Options] must be
// confirmed. Each entity is restored in a transaction of its own: after an error, the
// ones before stay restored, and the same restore continues.
func (s *Service) RestorePast(ctx context.Context, request tko.RestoreRequest) (tko.Restored, error) {
	query, err := pastQuery(request.Select)
	if err != nil {
		return tko.Restored{}, err
	}
	if request.Select.IsAll() {
		return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "this would restore all %ss: name one, or use a filter", query.Kind)
	}
	if request.AsOf.IsZero() {
		return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "there is no moment to restore: name it (--as-of)")
	}
	ctx, c, err := s.enter(ctx, query.Kind, changeVerb(query.Kind, access.Update))
	if err != nil {
		return tko.Restored{}, err
	}
	first, last, err := s.momentsOf(ctx, request.AsOf, tko.AsOf{})
	if err != nil {
		return tko.Restored{}, err
	}
	then, err := s.momentAt(ctx, c, query, first)
	if err != nil {
		return tko.Restored{}, err
	}
	now, err := s.momentAt(ctx, c, query, last)
	if err != nil {
		return tko.Restored{}, err
	}
	result := tko.Restored{Position: first}
	selected := map[string]bool{}
	for _, m := range []*pastMoment{then, now} {
		q := m.query
		q.Limit = -1
		for r, err := range s.store.List(ctx, q) {
			if err != nil {
				return tko.Restored{}, err
			}
			if selected[r.ID] = true; len(selected) > maxRestored {
				return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "more than %d %ss are selected: restore fewer at a time", maxRestored, query.Kind)
			}
		}
	}
	plans := map[string]string{} // what to do, by ID
	err = s.differences(ctx, c, then, now, func(d difference) error {
		id, what := d.before.ID, tko.PastChanged
		switch d.what() {
		case tko.PastCreated:
			id, what = d.after.ID, tko.PastDeleted
			result.Deleted++
		case tko.PastDeleted:
			what = tko.PastCreated
			result.Created++
		default:
			result.Changed++
		}
		if len(plans) >= maxRestored {
			return tko.Errorf(tko.ErrInvalid, "more than %d %ss are to be restored: restore fewer at a time", maxRestored, query.Kind)
		}
		plans[id] = what
		return nil
	})
	if err != nil {
		return tko.Restored{}, err
	}
	for id := range selected {
		if plans[id] == "" {
			result.Same++
		}
	}
	if request.Select.ID != "" && len(plans) == 0 && len(selected) == 0 {
		return tko.Restored{}, tko.Errorf(tko.ErrNotFound, "%s %q didn't exist as of position %d, and doesn't exist now", query.Kind, request.Select.ID, first)
	}
	if err := s.checkDescendants(ctx, query.Kind, plans); err != nil {
		return tko.Restored{}, err
	}
	if request.DryRun {
		return result, nil
	}
	if len(plans) > 0 {
		if _, err := s.allow(ctx, "restore", query.Kind, len(plans)); err != nil {
			return tko.Restored{}, err
		}
	}
	by := author(ctx)
	reason := fmt.Sprintf("restored as of position %d", first)
	if by.Why != "" {
		reason += ": " + by.Why
	}
	ctx = tko.WithAuthor(ctx, tko.Author{Who: by.Who, Why: reason})
	done := 0
	step := func(id string) error {
		key := Key{Kind: query.Kind, ID: id}
		var err error
		if plans[id] == tko.PastDeleted {
			err = s.deleteCreated(ctx, key)
		} else {
			err = s.restoreOne(ctx, then, key)
		}
		if err != nil {
			return fmt.Errorf("%s %q was not restored, after %d of %d that were: %w", key.Kind, id, done, len(plans), err)
		}
		done++
		return nil
	}
	order, err := s.restoreOrder(ctx, then, plans)
	if err != nil {
		return tko.Restored{}, err
	}
	for _, id := range order {
		if err := step(id); err != nil {
			return tko.Restored{}, err
		}
	}
	return result, nil
}

// checkDescendants returns an ErrInvalid if the deletion of deployments would delete
// others that are not part of the restore.
func (s *Service) checkDescendants(ctx context.Context, kind tko.Kind, plans map[string]string) error {
	if kind != tko.KindDeployment {
		return nil
	}
	var deleted []string
	for id, what := range plans {
		if what == tko.PastDeleted {
			deleted = append(deleted, id)
		}
	}
	other := ""
	err := s.store.Descendants(ctx, deleted, func(id string) {
		if plans[id] != tko.PastDeleted {
			other = id
		}
	})
	if err == nil && other != "" {
		err = tko.Errorf(tko.ErrInvalid, "deployment %q would be deleted with its parent, which was created after the moment, but isn't selected itself: select it, too, or delete it first", other)
	}
	return err
}

// restoreOrder returns the IDs to restore: deployments after their parents, deletions
// last.
func (s *Service) restoreOrder(ctx context.Context, then *pastMoment, plans map[string]string) ([]string, error) {
	ids := slices.Sorted(maps.Keys(plans))
	if then.query.Kind != tko.KindDeployment {
		return ids, nil
	}
	parents := map[string]string{}
	for page := range slices.Chunk(ids, pastPage) {
		keys := make([]Key, len(page))
		for i, id := range page {
			keys[i] = Key{Kind: tko.KindDeployment, ID: id}
		}
		records, err := s.store.GetAt(ctx, then.position, Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			parents[r.ID] = r.Parent
		}
	}
	depth := func(id string) int {
		n := 0
		for p := parents[id]; p != "" && plans[p] != "" && n < len(plans); p = parents[p] {
			n++
		}
		return n
	}
	depths := make(map[string]int, len(ids))
	for _, id := range ids {
		if depths[id] = depth(id); plans[id] == tko.PastDeleted {
			depths[id] = len(ids) + 1
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return depths[a] - depths[b] })
	return ids, nil
}

// deleteCreated deletes an entity that didn't exist at the moment. It is refused if
// other entities would be deleted with it that were not counted.
func (s *Service) deleteCreated(ctx context.Context, key Key) error {
	if err := s.permitDeletion(ctx, changeVerb(key.Kind, access.Delete), key); err != nil {
		return err
	}
	for {
		outcomes, err := s.commit(ctx, deletion(ctx, key))
		if err != nil {
			return err
		}
		if !outcomes[0].More {
			return nil
		}
	}
}

// restoreOne writes an entity as it was at the moment.
func (s *Service) restoreOne(ctx context.Context, then *pastMoment, key Key) error {
	return retry(ctx, func() error {
		records, err := then.records(ctx, []Key{key})
		if err != nil {
			return final(err)
		}
		current, err := s.get(ctx, Fields{}, key)
		if err != nil {
			return err
		}
		r := records[0]
		if r.Revision == 0 || current.Revision != 0 && sameContent(current, r) {
			return nil
		}
		r.Replaces, r.Steps = nil, nil
		r.Author = author(ctx)
		w := Write{Op: tko.OpWritten, Expect: current.Revision, Position: current.Position}
		if current.Revision != 0 {
			r.UID, r.Created, r.Origin = current.UID, current.Created, current.Origin
		} else {
			r.UID, w.Used = newUID(), true
			if r.Parent != "" {
				w.Requires = append(w.Requires, deploymentKey(tko.DeploymentID(r.Parent)))
			}
		}
		if err := s.permitWrite(ctx, current, r); err != nil {
			return final(err)
		}
		if err := s.permitApproval(ctx, current, &r); err != nil {
			return final(err)
		}
		references := references(r.Template, r.Site)
		if err := s.requireAll(ctx, references); err != nil {
			return final(err)
		}
		w.Requires = append(w.Requires, references...)
		if key.Kind == tko.KindDeployment {
			r.Conditions = mergeConditions(current.Conditions, flagConditions(current.Conditions, r.Prepared, r.Approved), current.Revision+1, time.Now())
		} else {
			r.Conditions = current.Conditions
		}
		w.Record = r
		_, err = s.commit(ctx, w)
		if errors.Is(err, tko.ErrNotFound) {
			return tko.Errorf(tko.ErrConflict, "%s %q was deleted while it was restored", key.Kind, key.ID)
		}
		return err
	})
}
