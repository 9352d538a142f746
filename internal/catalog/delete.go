package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/hold"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A Remover deletes templates, sites, deployments and plugins.
type Remover struct {
	rights *rights.Authorizer // callers enter and commit through it
	store  record.Store
	reader record.Lookup
	gate   *gate.Gate
	holds  *hold.Holds
	log    *slog.Logger

	entities *Entities
}

// progress is the progress of a deletion.
type progress struct {
	most                            int // maximum number of records that may be deleted, or lose a reference
	kind                            tko.Kind
	count, descendants, dissociated int
	reported                        time.Time
}

func (p *progress) deleted(selected int) tko.Deleted {
	return tko.Deleted{Count: p.count, Descendants: max(0, p.count-selected), Orphaned: p.dissociated}
}

// interrupted adds to an error what was deleted before it.
func (p *progress) interrupted(err error) error {
	switch {
	case p.count > 0:
		return fmt.Errorf("%d were deleted before this error: repeat the request to delete the rest, and confirm the count of the rest if the count was confirmed: %w", p.count, err)
	case p.dissociated > 0:
		return fmt.Errorf("it still exists, but %d stopped referring to it before this error: repeat the request to continue: %w", p.dissociated, err)
	default:
		return err
	}
}

// deleteAll deletes records, step by step, until all are deleted.
func (s *Remover) deleteAll(ctx context.Context, keys []record.Key, done *progress) error {
	for len(keys) > 0 {
		writes := make([]record.Write, len(keys))
		for i, key := range keys {
			writes[i] = deletion(ctx, key)
		}
		more, err := s.deleteStep(ctx, writes, done)
		if err != nil {
			return err
		}
		keys = more
		s.report(ctx, done)
	}
	return nil
}

// deleteStep commits deletions once, within the remaining limit, and returns
// the records that still exist.
func (s *Remover) deleteStep(ctx context.Context, writes []record.Write, done *progress) (more []record.Key, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	limit := max(0, done.most-done.count-done.dissociated)
	if _, ok := tko.ConfirmationOf(ctx); ok {
		if limit == 0 {
			return nil, record.Explain(&record.ExceededError{Limit: done.most})
		}
		ctx = tko.WithConfirmation(ctx, limit) // the rest of what was consented to
	}
	for i := range writes {
		writes[i].DeleteLimit = &limit
	}
	outcomes, err := s.rights.Commit(ctx, writes...)
	if err != nil {
		return nil, err
	}
	done.kind = writes[0].Record.Kind
	for _, o := range outcomes {
		done.count += o.Deleted
		done.descendants += o.Descendants
		done.dissociated += o.Dissociated
		if o.More {
			more = append(more, o.Key)
		}
	}
	return more, nil
}

// report logs the progress of a long deletion at intervals.
func (s *Remover) report(ctx context.Context, done *progress) {
	now := time.Now()
	if done.reported.IsZero() {
		done.reported = now
	}
	if now.Sub(done.reported) < reportEvery {
		return
	}
	done.reported = now
	s.log.InfoContext(ctx, "deleting", "kind", done.kind, "count", done.count, "dissociated", done.dissociated, "who", rights.Author(ctx).Who)
}

// DeleteTemplate deletes a template, and removes the references of sites and
// deployments to it.
func (s *Remover) DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error) {
	return s.delete(ctx, record.Key{Kind: tko.KindTemplate, ID: string(id)})
}

// DeleteSite deletes a site, and removes the references of deployments to it.
func (s *Remover) DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error) {
	return s.delete(ctx, record.Key{Kind: tko.KindSite, ID: string(id)})
}

// DeleteDeployment deletes a deployment and its descendants.
func (s *Remover) DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	return s.delete(ctx, record.DeploymentKey(id))
}

// DeletePlugin deletes a plugin.
func (s *Remover) DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error) {
	return s.delete(ctx, record.PluginKey(typ, name))
}

func (s *Remover) delete(ctx context.Context, key record.Key) (tko.Deleted, error) {
	ctx, _, err := s.rights.Enter(ctx, key.Kind, rights.ChangeVerb(key.Kind, access.Delete))
	if err != nil {
		return tko.Deleted{}, err
	}
	if record.CheckKey(key) != nil {
		return tko.Deleted{}, record.Missing(key)
	}
	most, err := s.allowDeletion(ctx, key)
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.deleteRest(ctx, key, []record.Key{key}, &progress{most: most})
}

// deleteRest deletes what is left of a record with its descendants.
func (s *Remover) deleteRest(ctx context.Context, key record.Key, rest []record.Key, done *progress) (tko.Deleted, error) {
	if err := s.deleteAll(ctx, rest, done); err != nil {
		return done.deleted(1), done.interrupted(err)
	}
	if done.count == 0 {
		return tko.Deleted{}, record.Missing(key)
	}
	s.log.InfoContext(ctx, "deleted", "kind", key.Kind, "id", key.ID, "descendants", done.descendants, "dissociated", done.dissociated, "who", rights.Author(ctx).Who)
	return done.deleted(1), nil
}

// allowDeletion is allow for the deletion of one record and its descendants.
func (s *Remover) allowDeletion(ctx context.Context, key record.Key) (most int, err error) {
	if err := s.rights.PermitDeletion(ctx, rights.ChangeVerb(key.Kind, access.Delete), key); err != nil {
		return 0, err
	}
	would, err := s.countBelow(ctx, key)
	if err != nil {
		return 0, err
	}
	adds, err := s.removals(ctx, key.Kind, would, []record.Key{key})
	if err != nil {
		return 0, err
	}
	if most, err = s.allowRemoval(ctx, key.Kind, key, []record.Key{key}, adds); err == nil {
		return most, nil
	}
	if r, getErr := s.reader.One(ctx, record.Fields{}, key); getErr == nil && r.Revision == 0 {
		return 0, tko.NotFound(key.Kind, key.ID)
	}
	return 0, err
}

// removals returns what a deletion of records counts as, with the records that lose their
// template or site by it.
func (s *Remover) removals(ctx context.Context, kind tko.Kind, would tko.Deleted, keys []record.Key) (map[record.Count]int, error) {
	adds, err := s.gate.OrphansOf(ctx, keys)
	if err == nil {
		adds[record.RemovalOf(kind)] += would.Count
	}
	return adds, err
}

func deletion(ctx context.Context, key record.Key) record.Write {
	return record.Write{Op: tko.OpDeleted, Record: record.Record{Key: key, Author: rights.Author(ctx)}, Expect: record.Any}
}

// PurgeTemplates deletes all selected templates; with dryRun it only counts
// them. Templates that are added during the purge are not deleted. An error does
// not undo earlier deletions, and states their number. A purge that exceeds the
// limits of [Options] must be confirmed; so must the deletion of one entity whose
// descendants exceed them.
func (s *Remover) PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	query, err := criteria.Templates(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgeSites deletes all selected sites, like PurgeTemplates.
func (s *Remover) PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	query, err := criteria.Sites(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgeDeployments deletes all selected deployments and their descendants, like
// PurgeTemplates.
func (s *Remover) PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	query, err := criteria.Deployments(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgePlugins deletes all selected plugins, like PurgeTemplates.
func (s *Remover) PurgePlugins(ctx context.Context, sel tko.PluginSelect, dryRun bool) (tko.Deleted, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindPlugin, access.Register)
	if err != nil {
		return tko.Deleted{}, err
	}
	scope := c.Scope(access.Register, tko.KindPlugin)
	return s.purgeList(ctx, tko.KindPlugin, func(after string) (iter.Seq2[record.Record, error], error) {
		return s.entities.selectPlugins(ctx, scope, sel, after)
	}, dryRun)
}

// purge deletes the records of a query that the caller may purge, or only counts them.
func (s *Remover) purge(ctx context.Context, query record.Query, err error, dryRun bool) (tko.Deleted, error) {
	if err != nil {
		return tko.Deleted{}, err
	}
	ctx, c, err := s.rights.Enter(ctx, query.Kind, access.Purge)
	if err != nil {
		return tko.Deleted{}, err
	}
	query.Scope = c.Scope(access.Purge, query.Kind)
	return s.purgeList(ctx, query.Kind, selected(ctx, s.store, query), dryRun)
}

func (s *Remover) purgeList(ctx context.Context, kind tko.Kind, list selection, dryRun bool) (tko.Deleted, error) {
	chosen, err := list.freeze()
	if err != nil {
		return tko.Deleted{}, err
	}
	each := func(do func(keys []record.Key) error) error { return list.each(chosen, do) }
	would, err := s.count(ctx, kind, chosen, each)
	if err == nil && kind == tko.KindDeployment && would.Descendants > 0 {
		err = each(func(keys []record.Key) error { return s.rights.PermitDeletion(ctx, access.Purge, keys...) })
	}
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.purgeChosen(ctx, kind, would, each, dryRun)
}

// withOrphans adds to the numbers of a deletion that of the records that lose a reference.
func withOrphans(would tko.Deleted, adds map[record.Count]int) tko.Deleted {
	would.Orphaned = -would.Count
	for _, n := range adds {
		would.Orphaned += n
	}
	return would
}

// pages calls do with pages of keys, until it returns an error.
type pages func(do func(keys []record.Key) error) error

// purgeChosen deletes records of a kind and their descendants, which count has counted;
// with dryRun it only counts those that lose their template or site.
func (s *Remover) purgeChosen(ctx context.Context, kind tko.Kind, would tko.Deleted, each pages, dryRun bool) (tko.Deleted, error) {
	var keys []record.Key
	if kind == tko.KindTemplate || kind == tko.KindSite {
		err := each(func(page []record.Key) error {
			keys = append(keys, page...)
			return nil
		})
		if err != nil {
			return tko.Deleted{}, err
		}
	}
	adds, err := s.removals(ctx, kind, would, keys)
	if err != nil {
		return tko.Deleted{}, err
	}
	if dryRun {
		return withOrphans(would, adds), nil
	}
	most, err := s.allowRemoval(ctx, kind, record.Key{Kind: kind}, keys, adds)
	if err != nil {
		return tko.Deleted{}, err
	}
	done, chosen := progress{most: most}, would.Count-would.Descendants
	err = each(func(keys []record.Key) error {
		for batch := range slices.Chunk(keys, purgeBatch) {
			if err := s.deleteAll(ctx, batch, &done); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return done.deleted(chosen), done.interrupted(err)
	}
	if done.count > 0 {
		s.log.InfoContext(ctx, "purged", "kind", done.kind, "count", done.count, "dissociated", done.dissociated, "who", rights.Author(ctx).Who)
	}
	return done.deleted(chosen), nil
}

// count returns the numbers of records that a purge would delete.
func (s *Remover) count(ctx context.Context, kind tko.Kind, chosen frozen, each pages) (tko.Deleted, error) {
	below := map[uint64]struct{}{}
	if kind == tko.KindDeployment {
		err := each(func(keys []record.Key) error { return s.addBelow(ctx, keys, chosen, below) })
		if err != nil {
			return tko.Deleted{}, err
		}
	}
	return tko.Deleted{Count: chosen.len() + len(below), Descendants: len(below)}, nil
}

// addBelow adds the hashes of those descendants of deployments that are not
// chosen themselves.
func (s *Remover) addBelow(ctx context.Context, keys []record.Key, chosen frozen, below map[uint64]struct{}) error {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.ID
	}
	return s.store.Descendants(ctx, ids, func(id string) {
		if hash := chosen.hash(id); !chosen.has(hash) {
			below[hash] = struct{}{}
		}
	})
}

func (s *Remover) countBelow(ctx context.Context, key record.Key) (tko.Deleted, error) {
	if key.Kind != tko.KindDeployment {
		return tko.Deleted{Count: 1}, nil
	}
	below := map[string]struct{}{}
	err := s.store.Descendants(ctx, []string{key.ID}, func(id string) { below[id] = struct{}{} })
	return tko.Deleted{Count: 1 + len(below), Descendants: len(below)}, err
}

// DeleteDeploymentAt deletes a deployment and its descendants if it is at a
// revision; at any if that is 0. Otherwise it returns ErrConflict.
func (s *Remover) DeleteDeploymentAt(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deleted, error) {
	if revision == 0 {
		return s.DeleteDeployment(ctx, id)
	}
	if !record.IsDeploymentID(id) {
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	}
	if revision < 0 {
		return tko.Deleted{}, tko.Errorf(tko.ErrInvalid, "the revision %d of deployment %q is negative: use 0 for any", revision, id)
	}
	ctx, _, err := s.rights.Enter(ctx, tko.KindDeployment, access.Delete)
	if err != nil {
		return tko.Deleted{}, err
	}
	w := deletion(ctx, record.DeploymentKey(id))
	w.Expect = revision
	most, err := s.allowDeletion(ctx, w.Record.Key)
	if err != nil {
		return tko.Deleted{}, err
	}
	done := progress{most: most}
	more, err := s.deleteStep(ctx, []record.Write{w}, &done)
	switch {
	case errors.Is(err, tko.ErrNotFound):
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	case err != nil:
		return tko.Deleted{}, err
	}
	return s.deleteRest(ctx, w.Record.Key, more, &done)
}
