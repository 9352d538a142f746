package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// DeleteTemplate deletes a template, and removes the references of sites and
// deployments to it.
func (s *Service) DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error) {
	return s.delete(ctx, Key{Kind: tko.KindTemplate, ID: string(id)})
}

// DeleteSite deletes a site, and removes the references of deployments to it.
func (s *Service) DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error) {
	return s.delete(ctx, Key{Kind: tko.KindSite, ID: string(id)})
}

// DeleteDeployment deletes a deployment and its descendants.
func (s *Service) DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	return s.delete(ctx, deploymentKey(id))
}

// DeletePlugin deletes a plugin.
func (s *Service) DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error) {
	return s.delete(ctx, pluginKey(typ, name))
}

func (s *Service) delete(ctx context.Context, key Key) (tko.Deleted, error) {
	ctx, _, err := s.enter(ctx, key.Kind, changeVerb(key.Kind, access.Delete))
	if err != nil {
		return tko.Deleted{}, err
	}
	if CheckKey(key) != nil {
		return tko.Deleted{}, missing(key)
	}
	most, err := s.allowDeletion(ctx, key)
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.deleteRest(ctx, key, []Key{key}, &progress{most: most})
}

// deleteRest deletes what is left of a record with its descendants.
func (s *Service) deleteRest(ctx context.Context, key Key, rest []Key, done *progress) (tko.Deleted, error) {
	if err := s.deleteAll(ctx, rest, done); err != nil {
		return done.deleted(1), done.interrupted(err)
	}
	if done.count == 0 {
		return tko.Deleted{}, missing(key)
	}
	s.log.InfoContext(ctx, "deleted", "kind", key.Kind, "id", key.ID, "descendants", done.descendants, "dissociated", done.dissociated, "who", author(ctx).Who)
	return done.deleted(1), nil
}

// allowDeletion is allow for the deletion of one record and its descendants.
func (s *Service) allowDeletion(ctx context.Context, key Key) (most int, err error) {
	if err := s.permitDeletion(ctx, changeVerb(key.Kind, access.Delete), key); err != nil {
		return 0, err
	}
	would, err := s.countBelow(ctx, key)
	if err != nil {
		return 0, err
	}
	if most, err = s.allow(ctx, "delete", key.Kind, would.Count); err == nil {
		return most, nil
	}
	if r, getErr := s.get(ctx, Fields{}, key); getErr == nil && r.Revision == 0 {
		return 0, tko.NotFound(key.Kind, key.ID)
	}
	return 0, err
}

func deletion(ctx context.Context, key Key) Write {
	return Write{Op: tko.OpDeleted, Record: Record{Key: key, Author: author(ctx)}, Expect: Any}
}

// PurgeTemplates deletes all selected templates; with dryRun it only counts
// them. Templates that are added during the purge are not deleted. An error does
// not undo earlier deletions, and states their number. A purge that exceeds the
// limits of [Options] must be confirmed; so must the deletion of one entity whose
// descendants exceed them.
func (s *Service) PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	query, err := templateQuery(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgeSites deletes all selected sites, like PurgeTemplates.
func (s *Service) PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	query, err := siteQuery(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgeDeployments deletes all selected deployments and their descendants, like
// PurgeTemplates.
func (s *Service) PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	query, err := deploymentQuery(sel, tko.ListOptions{})
	return s.purge(ctx, query, err, dryRun)
}

// PurgePlugins deletes all selected plugins, like PurgeTemplates.
func (s *Service) PurgePlugins(ctx context.Context, sel tko.PluginSelect, dryRun bool) (tko.Deleted, error) {
	ctx, c, err := s.enter(ctx, tko.KindPlugin, access.Register)
	if err != nil {
		return tko.Deleted{}, err
	}
	scope := c.scope(s, access.Register, tko.KindPlugin)
	return s.purgeList(ctx, tko.KindPlugin, func(after string) (iter.Seq2[Record, error], error) {
		return s.selectPlugins(ctx, scope, sel, after)
	}, dryRun)
}

// purge deletes the records of a query that the caller may purge, or only counts them.
func (s *Service) purge(ctx context.Context, query Query, err error, dryRun bool) (tko.Deleted, error) {
	if err != nil {
		return tko.Deleted{}, err
	}
	ctx, c, err := s.enter(ctx, query.Kind, access.Purge)
	if err != nil {
		return tko.Deleted{}, err
	}
	query.Scope = c.scope(s, access.Purge, query.Kind)
	return s.purgeList(ctx, query.Kind, s.selected(ctx, query), dryRun)
}

func (s *Service) purgeList(ctx context.Context, kind tko.Kind, list selection, dryRun bool) (tko.Deleted, error) {
	chosen, err := list.freeze()
	if err != nil {
		return tko.Deleted{}, err
	}
	would, err := s.count(ctx, kind, list, chosen)
	if err == nil && kind == tko.KindDeployment && would.Descendants > 0 {
		err = list.each(chosen, func(keys []Key) error { return s.permitDeletion(ctx, access.Purge, keys...) })
	}
	if err != nil {
		return tko.Deleted{}, err
	}
	if dryRun {
		return would, nil
	}
	most, err := s.allow(ctx, "delete", kind, would.Count)
	if err != nil {
		return tko.Deleted{}, err
	}
	done := progress{most: most}
	err = list.each(chosen, func(keys []Key) error {
		for batch := range slices.Chunk(keys, purgeBatch) {
			if err := s.deleteAll(ctx, batch, &done); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return done.deleted(chosen.len()), done.interrupted(err)
	}
	if done.count > 0 {
		s.log.InfoContext(ctx, "purged", "kind", done.kind, "count", done.count, "dissociated", done.dissociated, "who", author(ctx).Who)
	}
	return done.deleted(chosen.len()), nil
}

// count returns the numbers of records that a purge would delete.
func (s *Service) count(ctx context.Context, kind tko.Kind, list selection, chosen frozen) (tko.Deleted, error) {
	below := map[uint64]struct{}{}
	if kind == tko.KindDeployment {
		err := list.each(chosen, func(keys []Key) error { return s.addBelow(ctx, keys, chosen, below) })
		if err != nil {
			return tko.Deleted{}, err
		}
	}
	return tko.Deleted{Count: chosen.len() + len(below), Descendants: len(below)}, nil
}

// addBelow adds the hashes of those descendants of deployments that are not
// chosen themselves.
func (s *Service) addBelow(ctx context.Context, keys []Key, chosen frozen, below map[uint64]struct{}) error {
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
