package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A Restorer restores what was.
type Restorer struct {
	rights *rights.Authorizer // callers enter and commit through it
	store  record.Store
	reader record.Lookup
	gate   *gate.Gate

	moments *history.Moments
}

// RestorePast writes the selected templates, sites or plugins as they were at a moment,
// each as a new revision that names the moment: entities that were deleted since are created again,
// and those that were created since are deleted. Entities are selected by what they
// were then or are now. A restore that exceeds the limits of [Options] must be
// confirmed. A template that is created again gets the sites and deployments back that
// referred to it then and lost that since. Each entity is restored in a transaction of its own: after an error, the
// ones before stay restored, and the same restore continues. Deployments are only counted
// (DryRun): rollouts with spec.restore restore them.
func (s *Restorer) RestorePast(ctx context.Context, request tko.RestoreRequest) (tko.Restored, error) {
	query, err := history.QueryOf(request.Select)
	if err != nil {
		return tko.Restored{}, err
	}
	if request.Select.IsAll() {
		return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "this would restore all %ss: name one, or use a filter", query.Kind)
	}
	if request.AsOf.IsZero() {
		return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "there is no moment to restore: name it (--as-of)")
	}
	ctx, c, err := s.rights.Enter(ctx, query.Kind, rights.ChangeVerb(query.Kind, access.Update))
	if err != nil {
		return tko.Restored{}, err
	}
	first, last, err := s.moments.MomentsOf(ctx, query.Kind, request.Select.ID != "", request.AsOf, tko.AsOf{})
	if err != nil {
		return tko.Restored{}, err
	}
	then, err := s.moments.MomentAt(ctx, c, query, first)
	if err != nil {
		return tko.Restored{}, err
	}
	now, err := s.moments.MomentAt(ctx, c, query, last)
	if err != nil {
		return tko.Restored{}, err
	}
	result := tko.Restored{Position: first}
	selected := map[string]bool{}
	for _, m := range []*history.Moment{then, now} {
		if request.Select.ID != "" {
			r, err := s.rights.RecordAt(ctx, c, m.Position, record.Key{Kind: query.Kind, ID: request.Select.ID}, record.Fields{})
			if err != nil && !errors.Is(err, tko.ErrNotFound) {
				return tko.Restored{}, err
			}
			if m.Selects(r) {
				selected[r.ID] = true
			}
			continue
		}
		q := m.Query
		q.Limit = -1
		for r, err := range s.store.List(ctx, q) {
			if err != nil {
				return tko.Restored{}, err
			}
			selected[r.ID] = true
			if len(selected) > history.MaxRestored {
				return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "more than %d %ss are selected: restore fewer at a time", history.MaxRestored, query.Kind)
			}
		}
	}
	plans := map[string]string{} // what to do, by ID
	err = s.moments.Differences(ctx, c, then, now, func(d history.Difference) error {
		id, what := d.Before.ID, tko.PastChanged
		switch d.What() {
		case tko.PastCreated:
			id, what = d.After.ID, tko.PastDeleted
			result.Deleted++
		case tko.PastDeleted:
			what = tko.PastCreated
			result.Created++
		default:
			result.Changed++
		}
		if len(plans) >= history.MaxRestored {
			return tko.Errorf(tko.ErrInvalid, "more than %d %ss are to be restored: restore fewer at a time", history.MaxRestored, query.Kind)
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
	if request.DryRun && query.Kind == tko.KindTemplate {
		for id, what := range plans {
			if what == tko.PastCreated {
				err := s.eachLost(ctx, then, record.Key{Kind: query.Kind, ID: id}, func(record.Record) error { result.Associated++; return nil })
				if err != nil {
					return tko.Restored{}, err
				}
			}
		}
	}
	if request.DryRun {
		return result, nil
	}
	if query.Kind == tko.KindDeployment {
		return tko.Restored{}, tko.Errorf(tko.ErrInvalid, "deployments are restored by a rollout, in waves: use tko restore, or register a rollout with spec.restore")
	}
	if len(plans) > 0 {
		if err := s.gate.Allow(ctx, "restore", query.Kind, len(plans)); err != nil {
			return tko.Restored{}, err
		}
	}
	by := rights.Author(ctx)
	reason := fmt.Sprintf("restored as of position %d", first)
	if by.Why != "" {
		reason += ": " + by.Why
	}
	ctx = tko.WithAuthor(ctx, tko.Author{Who: by.Who, Why: reason})
	done := 0
	step := func(id string) error {
		key := record.Key{Kind: query.Kind, ID: id}
		var err error
		if plans[id] == tko.PastDeleted {
			err = s.deleteCreated(ctx, key)
		} else {
			err = s.restoreOne(ctx, then, key)
		}
		if err == nil && key.Kind == tko.KindTemplate && plans[id] == tko.PastCreated {
			var n int
			n, err = s.associate(ctx, then, key)
			result.Associated += n
		}
		if err != nil {
			return fmt.Errorf("%s %q was not restored, after %d of %d that were: %w", key.Kind, id, done, len(plans), err)
		}
		done++
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(plans)) {
		if err := step(id); err != nil {
			return tko.Restored{}, err
		}
	}
	return result, nil
}

// deleteCreated deletes an entity that didn't exist at the moment. It is refused if
// other entities would be deleted with it that were not counted.
func (s *Restorer) deleteCreated(ctx context.Context, key record.Key) error {
	if err := s.rights.PermitDeletion(ctx, rights.ChangeVerb(key.Kind, access.Delete), key); err != nil {
		return err
	}
	for {
		outcomes, err := s.rights.Commit(ctx, deletion(ctx, key))
		if err != nil {
			return err
		}
		if !outcomes[0].More {
			return nil
		}
	}
}

// restoreOne writes an entity as it was at the moment.
func (s *Restorer) restoreOne(ctx context.Context, then *history.Moment, key record.Key) error {
	return record.Retry(ctx, func() error {
		records, err := then.Records(ctx, []record.Key{key})
		if err != nil {
			return record.Final(err)
		}
		current, err := s.reader.One(ctx, record.Fields{}, key)
		if err != nil {
			return err
		}
		r := records[0]
		if r.Revision == 0 || current.Revision != 0 && record.SameContent(current, r) {
			return nil
		}
		r.Replaces, r.Steps = nil, nil
		r.Author = rights.Author(ctx)
		w := record.Write{Op: tko.OpWritten, Expect: current.Revision, Position: current.Position}
		if current.Revision != 0 {
			r.UID, r.Created, r.Origin = current.UID, current.Created, current.Origin
		} else {
			r.UID, w.Used = record.NewUID(), true
		}
		if err := s.rights.PermitWrite(ctx, current, r); err != nil {
			return record.Final(err)
		}
		references := record.References(r.Template, r.Site)
		if err := s.reader.RequireAll(ctx, references); err != nil {
			return record.Final(err)
		}
		w.Requires = append(w.Requires, references...)
		r.Conditions = current.Conditions
		w.Record = r
		_, err = s.rights.Commit(ctx, w)
		if errors.Is(err, tko.ErrNotFound) {
			return tko.Errorf(tko.ErrConflict, "%s %q was deleted while it was restored: try again", key.Kind, key.ID)
		}
		return err
	})
}

// eachLost calls visit with the sites and deployments, as they are, that referred to a template at
// the moment, and have none now.
func (s *Restorer) eachLost(ctx context.Context, then *history.Moment, template record.Key, visit func(record.Record) error) error {
	pattern, err := tko.ParsePattern(tko.LiteralPattern(template.ID))
	if err != nil {
		return err
	}
	for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
		query := record.Query{Kind: kind, Templates: []tko.Pattern{pattern}, Scope: then.Query.Scope, AsOf: then.Position, Limit: -1}
		var referred []record.Record
		look := func() error {
			now, err := s.store.Get(ctx, record.Fields{}, record.Keys(referred, func(r record.Record) record.Key { return r.Key })...)
			if err != nil {
				return err
			}
			for i, r := range now {
				if r.Revision != 0 && r.UID == referred[i].UID && r.Template == "" && !r.Deleting() {
					if err := visit(r); err != nil {
						return err
					}
				}
			}
			referred = referred[:0]
			return nil
		}
		for r, err := range s.store.List(ctx, query) {
			if err != nil {
				return err
			}
			referred = append(referred, r)
			if len(referred) == history.Page {
				if err := look(); err != nil {
					return err
				}
			}
		}
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}

// associate makes the sites and deployments refer to a restored template again that did at the
// moment, and returns their number. Nothing else of them changes.
func (s *Restorer) associate(ctx context.Context, then *history.Moment, template record.Key) (n int, err error) {
	was, err := then.Records(ctx, []record.Key{template})
	if err != nil {
		return 0, err
	}
	restored, err := s.reader.One(ctx, record.Fields{}, template)
	if err != nil {
		return 0, err
	}
	err = s.eachLost(ctx, then, template, func(r record.Record) error {
		return record.Retry(ctx, func() error {
			current, err := s.reader.One(ctx, record.Fields{}, r.Key)
			if err != nil || current.UID != r.UID || current.Template != "" {
				return err
			}
			next := current
			next.Template, next.Author, next.Steps = template.ID, rights.Author(ctx), nil
			if next.Base == was[0].Revision { // the same content
				next.Base = restored.Revision
			}
			if err := s.rights.PermitWrite(ctx, current, next); err != nil {
				return record.Final(err)
			}
			_, err = s.rights.Commit(ctx, record.Write{Op: tko.OpWritten, Record: next, Expect: current.Revision, Position: current.Position, Requires: []record.Key{template}})
			if err == nil {
				n++
			}
			return err
		})
	})
	if err != nil {
		err = fmt.Errorf("%d sites and deployments refer to it again, and not all: %w", n, err)
	}
	return n, err
}
