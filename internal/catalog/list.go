package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Templates returns the selected templates, sorted by ID, all from one
// snapshot.
func (s *Entities) Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error] {
	query, err := criteria.Templates(sel, options)
	return rights.List(ctx, s.rights, query, err, s.templateOf)
}

// Sites returns the selected sites, sorted by ID, all from one snapshot.
func (s *Entities) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	query, err := criteria.Sites(sel, options)
	return rights.List(ctx, s.rights, query, err, s.siteOf)
}

// Deployments returns the selected deployments, sorted by ID, all from one
// snapshot.
func (s *Entities) Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	query, err := criteria.Deployments(sel, options)
	return rights.List(ctx, s.rights, query, err, s.deploymentOf)
}

// Plugins returns the selected plugins, sorted by type, then name, all from one
// snapshot.
func (s *Entities) Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return record.Stream(func(yield func(tko.Plugin) bool) error {
		if err := criteria.CheckAfter(options.Window.After); err != nil {
			return err
		}
		ctx, w, err := s.rights.Reads(ctx, tko.KindPlugin)
		if err != nil {
			return err
		}
		records, err := s.selectPlugins(ctx, w.Caller().View(), sel, options.Window.After)
		if err != nil {
			return err
		}
		skip, left := options.Window.Offset, criteria.LimitOf(options.Window)
		if left == 0 {
			return nil
		}
		for r, err := range records {
			if err != nil {
				return err
			}
			if skip > 0 {
				skip--
				continue
			}
			p, err := record.PluginOf(r)
			if err != nil {
				return err
			}
			left--
			if !yield(p) || left == 0 {
				return nil
			}
		}
		return nil
	})
}

// selectPlugins returns the records of the selected plugins with IDs greater
// than after. The store selects by type and name; executor and trigger are
// filtered here.
func (s *Entities) selectPlugins(ctx context.Context, scope access.View, sel tko.PluginSelect, after string) (iter.Seq2[record.Record, error], error) {
	if err := criteria.CheckCount(len(sel.Names)); err != nil {
		return nil, err
	}
	asOf, err := s.reader.AsOf(ctx)
	if err != nil {
		return nil, err
	}
	query := record.Query{Kind: tko.KindPlugin, Scope: scope, AsOf: asOf, After: after, Limit: -1}
	sel = sel.WithoutEmpty()
	prefix := "*|"
	if sel.Type != nil {
		if !slices.Contains([]string{tko.PluginValidate, tko.PluginPrepare, tko.PluginSchedule}, *sel.Type) {
			return func(func(record.Record, error) bool) {}, nil
		}
		prefix = *sel.Type + "|"
	}
	names := sel.Names
	if len(names) == 0 {
		names = []string{"**"}
	}
	for _, name := range names {
		if _, err := criteria.IDPatterns("plugin name", []string{name}); err != nil {
			return nil, err
		}
		patterns, err := criteria.IDPatterns("plugin name", []string{prefix + name})
		if err != nil {
			return nil, err
		}
		query.IDs = append(query.IDs, patterns...)
	}
	records := s.store.List(ctx, query)
	if sel.Executor == nil && sel.Trigger == nil {
		return records, nil
	}
	return record.Stream(func(yield func(record.Record) bool) error {
		for r, err := range records {
			if err != nil {
				return err
			}
			p, err := record.PluginOf(r)
			if err != nil {
				return err
			}
			if (sel.Executor == nil || p.Executor == *sel.Executor) && (sel.Trigger == nil || p.Triggered(*sel.Trigger)) && !yield(r) {
				return nil
			}
		}
		return nil
	}), nil
}
