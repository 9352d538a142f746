package service

import (
	"context"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// A rowRights checks the rights that rows of a rollout need when they are applied: those of
// its owner and of the caller who started it. An undo needs none: they were checked at the
// start.
type rowRights struct {
	as []context.Context //nolint:containedctx // of one evaluation, with its caller
	// held is the reason why the rights aren't known.
	held error
}

func (s *RolloutRunner) rowRights(ctx context.Context, r record.Record, st record.RolloutState) (rowRights, error) {
	var rr rowRights
	if st.Undoes != "" || s.settings.Access == rights.Off {
		return rr, nil
	}
	owns, err := s.rights.OwnerOfRecord(ctx, r)
	if err != nil {
		return rr, err
	}
	if _, err := s.rights.RulesOf(ctx, 0); err != nil { // as of the commit: it fails if they have changed since
		return rr, err
	}
	persons := []record.Owner{owns}
	if st.Starter != nil && st.Starter.Key() != owns.Key() {
		persons = append(persons, *st.Starter)
	}
	for i, o := range persons {
		if o.IsZero() {
			continue
		}
		role := "the owner of"
		if i > 0 {
			role = "who started"
		}
		as, err := s.rights.As(ctx, r.ID, o, role)
		if errors.Is(err, tko.ErrDenied) {
			rr.held = err
			return rr, nil
		}
		if err != nil {
			return rr, err
		}
		rr.as = append(rr.as, as)
	}
	return rr, nil
}

// permit checks the write of a row.
func (rr rowRights) permit(s *rolloutStore, before record.Record, w record.Write) error {
	if rr.held != nil {
		return rr.held
	}
	for _, ctx := range rr.as {
		c, ok := rights.CallerOf(ctx)
		if !ok {
			return rights.ErrNotEntered
		}
		var err error
		switch {
		case before.Revision != 0 && !c.Sees(before): // the rollout shows it, so it isn't missing
			err = s.rights.Refuse(ctx, c, before.Kind, before.ID, access.Update)
		case w.Op == tko.OpDeleted:
			err = s.rights.Permit(ctx, &before, nil, access.Delete)
		case before.Revision == 0:
			if err = s.rights.Permit(ctx, nil, &w.Record, access.Create); err == nil {
				err = s.rights.PermitReferences(ctx, nil, &w.Record)
			}
		default:
			if err = s.rights.Permit(ctx, &before, &w.Record, access.Update); err == nil {
				err = s.rights.PermitReferences(ctx, &before, &w.Record)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// visibleRows returns those of the rows of a plan whose deployments the caller may read: as
// they are, or where they are to be created.
func (s *rolloutStore) visibleRows(ctx context.Context, c *rights.Caller, rows []record.RolloutRow) ([]record.RolloutRow, error) {
	if len(rows) == 0 || c.View().IsAll() {
		return rows, nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, record.Keys(rows, func(r record.RolloutRow) record.Key { return record.DeploymentKey(r.Deployment) })...)
	if err != nil {
		return nil, err
	}
	var seen []record.RolloutRow
	for i, row := range rows {
		r := records[i]
		if r.Revision == 0 {
			r = record.Record{Key: record.DeploymentKey(row.Deployment), Site: row.Site, Parent: row.Parent, Revision: 1}
		}
		if c.Sees(r) {
			seen = append(seen, row)
		}
	}
	return seen, nil
}

// visiblePlan returns a plan as the caller may see it: with the groups, the examples and the
// numbers of the rows that it may read.
func (s *RolloutControl) visiblePlan(ctx context.Context, c *rights.Caller, number int64, p tko.RolloutPlan) (tko.RolloutPlan, error) {
	if c.View().IsAll() {
		return p, nil
	}
	kinds, groups, seen := map[string]int{}, map[int]int{}, map[tko.DeploymentID]bool{}
	pulled := map[string]map[string]bool{} // the sites of images
	examples := map[tko.DeploymentID]bool{}
	for _, g := range p.Groups {
		for _, id := range g.Examples {
			examples[id] = true
		}
	}
	for after := ""; ; {
		rows, err := s.store.RolloutRows(ctx, string(p.ID), number, after, record.RowsPage)
		if err != nil {
			return tko.RolloutPlan{}, err
		}
		visible, err := s.visibleRows(ctx, c, rows)
		if err != nil {
			return tko.RolloutPlan{}, err
		}
		for _, row := range visible {
			kinds[row.Kind.String()]++
			if row.Kind != plan.Same {
				groups[row.Group]++
			}
			if examples[row.Deployment] {
				seen[row.Deployment] = true
			}
			for _, image := range row.Images {
				if pulled[image] == nil {
					pulled[image] = map[string]bool{}
				}
				pulled[image][row.Site] = true
			}
		}
		if len(rows) < record.RowsPage {
			break
		}
		after = string(rows[len(rows)-1].Deployment)
	}
	p.Kinds = kinds
	var left []tko.RolloutGroup
	for i, g := range p.Groups {
		if groups[i] == 0 {
			g.Changes, g.Templates, g.Examples, g.Count = nil, nil, nil, 0
		} else {
			g.Count = groups[i]
			g.Examples = slices.DeleteFunc(slices.Clone(g.Examples), func(id tko.DeploymentID) bool { return !seen[id] })
		}
		left = append(left, g) // rows name groups by their place
	}
	p.Groups = left
	var images []tko.RolloutImage
	for _, image := range p.Images { // of others it isn't known whose they are
		image.Sites = len(pulled[image.Reference])
		if image.Kind == plan.KindImage && image.Sites > 0 {
			images = append(images, image)
		}
	}
	p.Images = images
	return p, nil
}
