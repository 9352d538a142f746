package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
)

// asOwner returns a context in which the rollout controller sees what the owner of a
// rollout sees. Without an owner, the context is as it was. The error is an ErrDenied if the
// rights of the owner aren't known.
func (s *rights) asOwner(ctx context.Context, r record.Record) (context.Context, error) {
	o, err := s.ownerOfRecord(ctx, r)
	if err != nil {
		return ctx, err
	}
	return s.as(ctx, r.ID, o)
}

// as returns a context in which the rollout controller has the rights of an owner.
func (s *rights) as(ctx context.Context, rollout string, o record.Owner) (context.Context, error) {
	c, ok := callerOf(ctx)
	if !ok {
		return ctx, errNotEntered
	}
	if s.options.Access == AccessOff || o.IsZero() {
		return ctx, nil
	}
	own := *c
	if err := s.actAs(ctx, &own, identity.RoleRollout, tko.Acting{Kind: tko.KindRollout, ID: rollout}, o); err != nil {
		return ctx, err
	}
	if held := own.acting.held; held != "" && !own.reporting {
		return ctx, tko.Errorf(tko.ErrDenied, "rollout %q is held: %s", rollout, held)
	}
	return context.WithValue(ctx, callerKey{}, &own), nil
}

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
	if st.Undoes != "" || s.options.Access == AccessOff {
		return rr, nil
	}
	owns, err := s.ownerOfRecord(ctx, r)
	if err != nil {
		return rr, err
	}
	if _, err := s.rulesOf(ctx, 0); err != nil { // as of the commit: it fails if they have changed since
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
		as, err := s.as(ctx, r.ID, o)
		if errors.Is(err, tko.ErrDenied) {
			rr.held = err
			return rr, nil
		}
		if err != nil {
			return rr, err
		}
		if c, ok := callerOf(as); ok && i > 0 {
			c.acting.role = "who started"
		}
		rr.as = append(rr.as, as)
	}
	return rr, nil
}

// permit checks the write of a row.
func (rr rowRights) permit(s *core, before record.Record, w record.Write) error {
	if rr.held != nil {
		return rr.held
	}
	for _, ctx := range rr.as {
		c, ok := callerOf(ctx)
		if !ok {
			return errNotEntered
		}
		var err error
		switch {
		case before.Revision != 0 && !c.sees(before): // the rollout shows it, so it isn't missing
			err = s.refuse(ctx, c, before.Kind, before.ID, access.Update)
		case w.Op == tko.OpDeleted:
			err = s.permit(ctx, &before, nil, access.Delete)
		case before.Revision == 0:
			if err = s.permit(ctx, nil, &w.Record, access.Create); err == nil {
				err = s.permitReferences(ctx, nil, &w.Record)
			}
		default:
			if err = s.permit(ctx, &before, &w.Record, access.Update); err == nil {
				err = s.permitReferences(ctx, &before, &w.Record)
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
func (s *core) visibleRows(ctx context.Context, c *caller, rows []record.RolloutRow) ([]record.RolloutRow, error) {
	if len(rows) == 0 || c.view().IsAll() {
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
		if c.sees(r) {
			seen = append(seen, row)
		}
	}
	return seen, nil
}

// visiblePlan returns a plan as the caller may see it: with the groups, the examples and the
// numbers of the rows that it may read.
func (s *RolloutControl) visiblePlan(ctx context.Context, c *caller, number int64, p tko.RolloutPlan) (tko.RolloutPlan, error) {
	if c.view().IsAll() {
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
		rows, err := s.store.RolloutRows(ctx, string(p.ID), number, after, rowsPage)
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
		if len(rows) < rowsPage {
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
