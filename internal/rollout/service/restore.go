package service

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// restoreDrafts makes the drafts of a rollout that returns deployments to what they were
// at a moment: one for each deployment that its selection selected then or selects now, and
// that differs. Packages are in memory for a page of them only.
func (s *RolloutPlans) restoreDrafts(ctx context.Context, request plan.Request, emit func(plan.Draft) error) error {
	first, last, err := s.moments.MomentsOf(ctx, tko.KindDeployment, request.Spec.Restore.Deployments != nil, request.Spec.Restore.AsOf, tko.AsOf{})
	if err != nil {
		return err
	}
	differing, err := s.restoredDifferences(ctx, *request.Spec.Restore, first, last)
	if err != nil {
		return err
	}
	planned := map[string]*restoration{} // by ID
	var order []*restoration
	for _, d := range differing {
		r := &restoration{difference: d, Draft: draftOf(d)}
		if request.Only == nil || request.Only(r.Deployment) {
			order, planned[string(r.Deployment)] = append(order, r), r
		}
	}
	if err := s.checkRestored(ctx, order, planned); err != nil {
		return err
	}
	for page := range slices.Chunk(order, history.Page) {
		keys := record.Keys(page, func(r *restoration) record.Key { return record.DeploymentKey(r.Deployment) })
		then, err := s.store.GetAt(ctx, first, record.Fields{Package: true}, keys...)
		if err != nil {
			return err
		}
		now, err := s.store.GetAt(ctx, last, record.Fields{Package: true}, keys...)
		if err != nil {
			return err
		}
		for i, r := range page {
			if r.BeforeState, err = stateOf(now[i]); err == nil && r.Kind != plan.Delete {
				r.AfterState, err = stateOf(then[i])
			}
			if err == nil {
				err = emit(r.Draft)
			}
			if err != nil {
				return err
			}
			r.BeforeState, r.AfterState = nil, nil
		}
	}
	return nil
}

// A restoration is a deployment that differs from what it was, without its packages, with
// the draft that returns it to that.
type restoration struct {
	difference history.Difference
	plan.Draft
}

// restoredDifferences returns the selected deployments that differ between a moment and
// now, without packages.
func (s *RolloutPlans) restoredDifferences(ctx context.Context, restore spec.Restore, first, last int64) ([]history.Difference, error) {
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return nil, rights.ErrNotEntered
	}
	selections := []tko.PastSelect{{
		Kind: tko.KindDeployment, Parent: restore.Select.Parent, Metadata: restore.Select.Metadata, Templates: restore.Select.Templates,
		TemplateMetadata: restore.Select.TemplateMetadata, Sites: restore.Select.Sites, SiteMetadata: restore.Select.SiteMetadata,
	}}
	if restore.Deployments != nil {
		selections = nil
		for _, id := range restore.Deployments {
			selections = append(selections, tko.PastSelect{Kind: tko.KindDeployment, ID: string(id)})
		}
	}
	var found []history.Difference
	for _, sel := range selections {
		if sel.IsAll() {
			return nil, tko.Errorf(tko.ErrInvalid, "the selection is empty: it would restore every deployment")
		}
		query, err := history.QueryOf(sel)
		if err != nil {
			return nil, err
		}
		then, err := s.moments.MomentAt(ctx, c, query, first)
		if err != nil {
			return nil, err
		}
		now, err := s.moments.MomentAt(ctx, c, query, last)
		if err != nil {
			return nil, err
		}
		then.Fields, now.Fields = record.Fields{}, record.Fields{}
		if err := s.moments.Differences(ctx, c, then, now, func(d history.Difference) error {
			if len(found) == history.MaxRestored {
				return tko.Errorf(tko.ErrInvalid, "more than %d deployments differ: restore fewer at a time", history.MaxRestored)
			}
			found = append(found, d)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if restore.Deployments == nil {
		return found, nil
	}
	return s.withDescendants(ctx, found, first, last)
}

// withDescendants adds the descendants that were deleted since a moment to the deployments that are
// created again. Descendants of those that are deleted must be selected.
func (s *RolloutPlans) withDescendants(ctx context.Context, found []history.Difference, first, last int64) ([]history.Difference, error) {
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return nil, rights.ErrNotEntered
	}
	known, above := map[string]bool{}, map[string]bool{}
	for _, d := range found {
		known[max(d.Before.ID, d.After.ID)] = true
		if d.What() == tko.PastDeleted {
			above[d.Before.ID] = true
		}
	}
	for len(above) > 0 {
		below := map[string]bool{}
		if err := s.eachChild(ctx, c, above, first, func(r record.Record) {
			if !known[r.ID] {
				known[r.ID], below[r.ID] = true, true
			}
		}); err != nil {
			return nil, err
		}
		above = map[string]bool{}
		for page := range slices.Chunk(slices.Sorted(maps.Keys(below)), history.Page) {
			keys := record.Keys(page, func(id string) record.Key { return record.DeploymentKey(tko.DeploymentID(id)) })
			then, err := s.store.GetAt(ctx, first, record.Fields{Scope: c.View()}, keys...)
			if err != nil {
				return nil, err
			}
			now, err := s.store.GetAt(ctx, last, record.Fields{Scope: c.View()}, keys...)
			if err != nil {
				return nil, err
			}
			for i := range keys {
				d := history.Difference{Before: then[i], After: now[i]}
				if d.Before.Revision == 0 || d.After.Revision != 0 {
					continue
				}
				above[keys[i].ID] = true
				if len(found) == history.MaxRestored {
					return nil, tko.Errorf(tko.ErrInvalid, "more than %d deployments differ: restore fewer at a time", history.MaxRestored)
				}
				found = append(found, d)
			}
		}
	}
	return found, nil
}

// maxParents limits the deployments whose children are read one by one; of more, all deployments
// are read.
const maxParents = 50

// eachChild calls visit with the children of deployments as of a position, as far as the caller
// may see them.
func (s *RolloutPlans) eachChild(ctx context.Context, c *rights.Caller, parents map[string]bool, position int64, visit func(record.Record)) error {
	query := record.Query{Kind: tko.KindDeployment, Scope: c.View(), AsOf: position, Limit: -1}
	queries := []record.Query{query}
	if len(parents) <= maxParents {
		queries = nil
		for _, id := range slices.Sorted(maps.Keys(parents)) {
			query.Parent = id
			queries = append(queries, query)
		}
	}
	for _, query := range queries {
		for r, err := range s.store.List(ctx, query) {
			if err != nil {
				return err
			}
			if parents[r.Parent] {
				visit(r)
			}
		}
	}
	return nil
}

// draftOf returns the draft that returns a deployment to what it was before, without its
// states.
func draftOf(d history.Difference) plan.Draft {
	then, now := d.Before, d.After
	draft := plan.Draft{Row: plan.Row{Deployment: tko.DeploymentID(now.ID), Kind: plan.Change, UID: now.UID, Revision: now.Revision}, Key: now.ID, Site: tko.SiteID(now.Site), Parent: tko.DeploymentID(now.Parent)}
	if now.Revision != 0 {
		draft.Broken, draft.Before = isBroken(now), PlanDigestOf(now)
	}
	if then.Revision == 0 {
		draft.Kind = plan.Delete
		return draft
	}
	if now.Revision == 0 {
		draft.Kind, draft.Deployment, draft.Key, draft.Parent = plan.Create, tko.DeploymentID(then.ID), then.ID, tko.DeploymentID(then.Parent)
	}
	if then.Site != "" {
		draft.Site = tko.SiteID(then.Site)
	}
	draft.After = PlanDigestOf(then)
	draft.Restored = &plan.Restored{Revision: then.Revision, Base: then.Base, Approves: then.Approved && !now.Approved}
	return draft
}

// stateOf returns the state of a record with its package; nil if it doesn't exist.
func stateOf(r record.Record) (*plan.State, error) {
	if r.Revision == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	d := record.DeploymentOf(r)
	var err error
	d.Package, err = r.Resources()
	return &plan.State{Deployment: d, Digest: PlanDigestOf(r)}, err
}

// checkRestored marks what can't be restored as conflicts, and puts what is created or
// deleted together into one group (Root).
func (s *RolloutPlans) checkRestored(ctx context.Context, all []*restoration, planned map[string]*restoration) error {
	conflict := func(r *restoration, format string, args ...any) {
		r.Kind, r.Restored, r.After = plan.Conflict, nil, plan.Digest{}
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
	exists, err := s.existing(ctx, all)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Kind == plan.Delete {
			other := ""
			if err := s.store.Descendants(ctx, []string{string(r.Deployment)}, func(id string) {
				if one := planned[id]; one == nil || one.difference.Before.Revision != 0 {
					other = id
				}
			}); err != nil {
				return err
			}
			if other != "" {
				conflict(r, "it was created after the moment, but its descendant %q isn't deleted: select it, too, or delete it first", other)
			}
		} else if site := r.difference.Before.Site; site != "" && !exists[record.Key{Kind: tko.KindSite, ID: site}] {
			conflict(r, "its site %q was deleted since: restore the site first (tko restore site %s)", site, site)
		}
	}
	for again := true; again; {
		again = false
		for _, r := range all {
			if parent := planned[string(r.Parent)]; r.Kind == plan.Create && r.Parent != "" && !exists[record.DeploymentKey(r.Parent)] && (parent == nil || parent.Kind != plan.Create) {
				conflict(r, "its parent %q was deleted since and isn't restored: select it, too", r.Parent)
				again = true
			}
		}
	}
	for _, r := range all {
		r.Root = rootOf(r, planned)
	}
	for _, r := range all {
		if r.Kind != plan.Create {
			continue
		}
		first := r // of its group: its origin decides
		if r.Root != "" {
			first = planned[string(r.Root)]
		}
		holder, err := s.reader.OriginHolder(ctx, first.difference.Before)
		if err != nil {
			return err
		}
		if one := planned[holder]; one != nil && one.Kind == plan.Delete {
			r.Restored.Follows = true
			r.Restored.Root = one.Deployment
			if one.Root != "" {
				r.Restored.Root = one.Root
			}
		} else if holder != "" {
			conflict(r, "deployment %q was created in its place: select it, too, or delete it first", holder)
		}
	}
	for _, r := range all {
		if r.Restored != nil && r.Restored.Follows {
			r.Root = r.Restored.Root
		}
	}
	return nil
}

// rootOf returns the farthest ancestor that is created or deleted with a deployment, or "".
func rootOf(r *restoration, planned map[string]*restoration) (root tko.DeploymentID) {
	if r.Kind != plan.Create && r.Kind != plan.Delete {
		return ""
	}
	at := planned[string(r.Parent)]
	for n := 0; at != nil && at.Kind == r.Kind && n < rights.MaxAncestors; n++ {
		root, at = at.Deployment, planned[string(at.Parent)]
	}
	return root
}

// existing returns which sites and parents of restored deployments exist.
func (s *RolloutPlans) existing(ctx context.Context, all []*restoration) (map[record.Key]bool, error) {
	exists := map[record.Key]bool{}
	for _, r := range all {
		if r.difference.Before.Site != "" {
			exists[record.Key{Kind: tko.KindSite, ID: r.difference.Before.Site}] = false
		}
		if r.Kind == plan.Create && r.Parent != "" {
			exists[record.DeploymentKey(r.Parent)] = false
		}
	}
	for page := range slices.Chunk(slices.Collect(maps.Keys(exists)), record.RowsPage) {
		records, err := s.store.Get(ctx, record.Fields{}, page...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			exists[r.Key] = r.Revision != 0
		}
	}
	return exists, nil
}
