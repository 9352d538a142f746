package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// DeleteTemplate deletes a template. Its sites and deployments stay, without
// it.
func (s *Service) DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error) {
	if err := tko.CheckID("template ID", string(id)); err != nil {
		return tko.Deleted{}, err
	}
	return s.delete(ctx, Key{Kind: tko.KindTemplate, ID: string(id)})
}

// DeleteSite deletes a site. Its deployments stay, without it.
func (s *Service) DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error) {
	if err := tko.CheckID("site ID", string(id)); err != nil {
		return tko.Deleted{}, err
	}
	return s.delete(ctx, Key{Kind: tko.KindSite, ID: string(id)})
}

// DeleteDeployment deletes a deployment and its descendants.
func (s *Service) DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	if !isDeploymentID(id) {
		return tko.Deleted{}, tko.NotFound(tko.KindDeployment, id)
	}
	return s.delete(ctx, deploymentKey(id))
}

// DeletePlugin deletes a plugin.
func (s *Service) DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error) {
	key := pluginKey(typ, name)
	if !isPluginID(key.ID) {
		return tko.Deleted{}, tko.NotFound(key.Kind, key.ID)
	}
	return s.delete(ctx, key)
}

func (s *Service) delete(ctx context.Context, key Key) (tko.Deleted, error) {
	outcomes, err := s.commit(ctx, deletion(ctx, key))
	if err != nil {
		return tko.Deleted{}, err
	}
	if outcomes[0].Deleted == 0 {
		return tko.Deleted{}, tko.NotFound(key.Kind, key.ID)
	}
	s.log.InfoContext(ctx, "deleted", "kind", key.Kind, "id", key.ID, "descendants", outcomes[0].Descendants, "who", author(ctx).Who)
	return tko.Deleted{Count: outcomes[0].Deleted, Descendants: outcomes[0].Descendants}, nil
}

func deletion(ctx context.Context, key Key) Write {
	return Write{Op: tko.OpDeleted, Record: Record{Key: key, Author: author(ctx)}, Expect: Any}
}

// PurgeTemplates deletes all selected templates; with dryRun it only counts.
func (s *Service) PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	query, err := templateQuery(sel, tko.ListOptions{})
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.purge(ctx, s.store.List(ctx, query), dryRun)
}

// PurgeSites deletes all selected sites; with dryRun it only counts.
func (s *Service) PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	query, err := siteQuery(sel, tko.ListOptions{})
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.purge(ctx, s.store.List(ctx, query), dryRun)
}

// PurgeDeployments deletes all selected deployments and their descendants; with
// dryRun it only counts.
func (s *Service) PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	query, err := deploymentQuery(sel, tko.ListOptions{})
	if err != nil {
		return tko.Deleted{}, err
	}
	if dryRun {
		return s.countWithDescendants(ctx, query)
	}
	return s.purge(ctx, s.store.List(ctx, query), false)
}

// PurgePlugins deletes all selected plugins; with dryRun it only counts.
func (s *Service) PurgePlugins(ctx context.Context, sel tko.PluginSelect, dryRun bool) (tko.Deleted, error) {
	records, err := s.selectPlugins(ctx, sel, "")
	if err != nil {
		return tko.Deleted{}, err
	}
	return s.purge(ctx, records, dryRun)
}

// purgeBatch is how many records a purge deletes in one transaction.
const purgeBatch = 500

// purge deletes records in batches. After an error it answers what went before
// it. It reads what is selected to its end first: a list that stays open while
// others wait for what it holds would have everybody wait for ever.
func (s *Service) purge(ctx context.Context, records iter.Seq2[Record, error], dryRun bool) (tko.Deleted, error) {
	selected, err := keysOf(records)
	if err != nil {
		return tko.Deleted{}, err
	}
	if dryRun {
		return tko.Deleted{Count: len(selected)}, nil
	}
	var deleted tko.Deleted
	tried := 0
	for keys := range slices.Chunk(selected, purgeBatch) {
		batch := make([]Write, len(keys))
		for i, key := range keys {
			batch[i] = deletion(ctx, key)
		}
		outcomes, err := s.commit(ctx, batch...)
		if err != nil {
			return deleted, err
		}
		tried += len(keys)
		for _, o := range outcomes {
			deleted.Count += o.Deleted
		}
		deleted.Descendants = max(0, deleted.Count-tried)
		s.log.InfoContext(ctx, "purged", "kind", keys[0].Kind, "count", len(keys), "first", keys[0].ID, "who", author(ctx).Who)
	}
	return deleted, nil
}

// keysOf reads a list to its end.
func keysOf(records iter.Seq2[Record, error]) ([]Key, error) {
	var keys []Key
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		keys = append(keys, r.Key)
	}
	return keys, nil
}

// fewSelected is up to how many selected deployments their descendants are
// looked up one by one; of more, all deployments are read once.
const fewSelected = 1000

// countWithDescendants counts what a purge of deployments would delete.
func (s *Service) countWithDescendants(ctx context.Context, query Query) (tko.Deleted, error) {
	going := map[string]bool{}
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return tko.Deleted{}, err
		}
		going[r.ID] = true
	}
	selected := len(going)
	children := s.childrenOf
	if selected > fewSelected {
		family, err := s.family(ctx)
		if err != nil {
			return tko.Deleted{}, err
		}
		children = func(_ context.Context, parent string) ([]string, error) { return family[parent], nil }
	}
	next := make([]string, 0, selected)
	for id := range going {
		next = append(next, id)
	}
	for len(next) > 0 {
		parent := next[len(next)-1]
		next = next[:len(next)-1]
		ids, err := children(ctx, parent)
		if err != nil {
			return tko.Deleted{}, err
		}
		for _, id := range ids {
			if !going[id] {
				going[id] = true
				next = append(next, id)
			}
		}
	}
	return tko.Deleted{Count: len(going), Descendants: len(going) - selected}, nil
}

func (s *Service) childrenOf(ctx context.Context, parent string) ([]string, error) {
	var ids []string
	for r, err := range s.store.List(ctx, Query{Kind: tko.KindDeployment, Parent: parent, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// family answers the children of all deployments that have any.
func (s *Service) family(ctx context.Context) (map[string][]string, error) {
	family := map[string][]string{}
	for r, err := range s.store.List(ctx, Query{Kind: tko.KindDeployment, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		if r.Parent != "" {
			family[r.Parent] = append(family[r.Parent], r.ID)
		}
	}
	return family, nil
}
