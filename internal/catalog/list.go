package catalog

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Templates returns the selected templates, sorted by ID, all from one
// snapshot.
func (s *Entities) Templates(ctx context.Context, sel tko.TemplateSelect, options tko.ListOptions) iter.Seq2[tko.Template, error] {
	query, err := templateQuery(sel, options)
	return list(ctx, s.core, query, err, s.templateOf)
}

// Sites returns the selected sites, sorted by ID, all from one snapshot.
func (s *Entities) Sites(ctx context.Context, sel tko.SiteSelect, options tko.ListOptions) iter.Seq2[tko.Site, error] {
	query, err := siteQuery(sel, options)
	return list(ctx, s.core, query, err, s.siteOf)
}

// Deployments returns the selected deployments, sorted by ID, all from one
// snapshot.
func (s *Entities) Deployments(ctx context.Context, sel tko.DeploymentSelect, options tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	query, err := deploymentQuery(sel, options)
	return list(ctx, s.core, query, err, s.deploymentOf)
}

// list streams the entities of a query, as of the moment of the context (see
// [tko.WithAsOf]).
func list[T any](ctx context.Context, s *core, query record.Query, err error, entity func(*caller, record.Record) (T, error)) iter.Seq2[T, error] {
	return stream(func(yield func(T) bool) error {
		if err != nil {
			return err
		}
		ctx, w, err := s.reads(ctx, query.Kind)
		if err != nil {
			return err
		}
		query.Scope = w.caller.view()
		if query.AsOf, err = s.asOf(ctx); err != nil {
			return err
		}
		return s.each(ctx, w, query, func(r record.Record) (bool, error) {
			e, err := entity(w.caller, r)
			return err == nil && yield(e), err
		})
	})
}

// each calls visit with the records of a list until it returns false or an error, as long as
// the rights of the caller stay the same.
func (s *core) each(ctx context.Context, w *Watcher, query record.Query, visit func(record.Record) (more bool, err error)) error {
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return s.listFault(ctx, query, err)
		}
		if err := w.Still(ctx); err != nil {
			return err
		}
		if more, err := visit(r); err != nil || !more {
			return err
		}
	}
	return nil
}

// stream returns the sequence of the values that produce passes to yield, until yield returns
// false. The error of produce comes last.
func stream[T any](produce func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		more := true
		err := produce(func(value T) bool {
			more = yield(value, nil)
			return more
		})
		if err != nil && more {
			var none T
			yield(none, err)
		}
	}
}

// Plugins returns the selected plugins, sorted by type, then name, all from one
// snapshot.
func (s *Entities) Plugins(ctx context.Context, sel tko.PluginSelect, options tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return stream(func(yield func(tko.Plugin) bool) error {
		if err := checkAfter(options.Window.After); err != nil {
			return err
		}
		ctx, w, err := s.reads(ctx, tko.KindPlugin)
		if err != nil {
			return err
		}
		records, err := s.selectPlugins(ctx, w.caller.view(), sel, options.Window.After)
		if err != nil {
			return err
		}
		skip, left := options.Window.Offset, limitOf(options.Window)
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
	if err := checkPatternCount(len(sel.Names)); err != nil {
		return nil, err
	}
	asOf, err := s.asOf(ctx)
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
		if _, err := idPatterns("plugin name", []string{name}); err != nil {
			return nil, err
		}
		patterns, err := idPatterns("plugin name", []string{prefix + name})
		if err != nil {
			return nil, err
		}
		query.IDs = append(query.IDs, patterns...)
	}
	records := s.store.List(ctx, query)
	if sel.Executor == nil && sel.Trigger == nil {
		return records, nil
	}
	return stream(func(yield func(record.Record) bool) error {
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

func templateQuery(sel tko.TemplateSelect, options tko.ListOptions) (record.Query, error) {
	p := patternParser{}
	if err := checkPatternCount(len(sel.IDs) + len(sel.Metadata)); err != nil {
		return record.Query{}, err
	}
	query := p.query(tko.KindTemplate, options)
	query.IDs = p.ids("template ID", sel.IDs)
	query.Metadata = p.metadata("metadata", sel.Metadata)
	plain(&query, filter.Templates, &sel)
	return query, p.err
}

func siteQuery(sel tko.SiteSelect, options tko.ListOptions) (record.Query, error) {
	p := patternParser{}
	if err := checkPatternCount(len(sel.IDs) + len(sel.Templates) + len(sel.Metadata) + len(sel.Conditions)); err != nil {
		return record.Query{}, err
	}
	query := p.query(tko.KindSite, options)
	query.IDs = p.ids("site ID", sel.IDs)
	query.Templates = p.ids("template ID", sel.Templates)
	query.Metadata = p.metadata("metadata", sel.Metadata)
	query.Conditions = p.conditions(sel.Conditions)
	plain(&query, filter.Sites, &sel)
	return query, p.err
}

func deploymentQuery(sel tko.DeploymentSelect, options tko.ListOptions) (record.Query, error) {
	p := patternParser{}
	if err := checkPatternCount(len(sel.IDs) + len(sel.Templates) + len(sel.Sites) + len(sel.Metadata) + len(sel.TemplateMetadata) + len(sel.SiteMetadata) + len(sel.Conditions)); err != nil {
		return record.Query{}, err
	}
	query := p.query(tko.KindDeployment, options)
	query.Fields.Deployments, query.Fields.Counts = false, false
	query.Templates = p.ids("template ID", sel.Templates)
	query.Sites = p.ids("site ID", sel.Sites)
	query.Metadata = p.metadata("metadata", sel.Metadata)
	query.TemplateMetadata = p.metadata("template metadata", sel.TemplateMetadata)
	query.SiteMetadata = p.metadata("site metadata", sel.SiteMetadata)
	query.Parent = string(sel.Parent)
	plain(&query, filter.Deployments, &sel)
	query.IDs = p.ids("deployment ID", sel.IDs)
	query.Outdated = sel.Outdated
	query.Conditions = p.conditions(sel.Conditions)
	if sel.Parent != "" && !isDeploymentID(sel.Parent) {
		query.Parent, query.Limit = "", 0 // no deployment has such a parent
	}
	return query, p.err
}

// plain adds the filters that compare a column.
func plain[S any](q *record.Query, fields []filter.Field[S], sel *S) {
	for _, f := range fields {
		switch {
		case f.Column == "":
		case f.Flag != nil:
			if is := *f.Flag(sel); is != nil {
				if q.Is == nil {
					q.Is = map[string]bool{}
				}
				q.Is[f.Column] = *is
			}
		case f.Since != nil:
			if since := *f.Since(sel); !since.IsZero() {
				if q.Since == nil {
					q.Since = map[string]time.Time{}
				}
				q.Since[f.Column] = since
			}
		}
	}
}

// maxPatterns is the maximum number of patterns of one select: all of them are
// compared with each candidate, and become one statement of the database.
const maxPatterns = 100

func checkPatternCount(n int) error {
	if n > maxPatterns {
		return tko.Errorf(tko.ErrInvalid, "the select has %d patterns: use at most %d, or several requests", n, maxPatterns)
	}
	return nil
}

// A patternParser parses patterns and retains the first error.
type patternParser struct{ err error }

func (p *patternParser) query(kind tko.Kind, options tko.ListOptions) record.Query {
	p.err = checkAfter(options.Window.After)
	return record.Query{
		Kind:   kind,
		After:  options.Window.After,
		Offset: options.Window.Offset,
		Limit:  limitOf(options.Window),
		Fields: record.Fields{Package: options.Packages, Deployments: options.Deployments, Counts: options.Counts},
	}
}

func (p *patternParser) ids(what string, texts []string) []tko.Pattern {
	patterns, err := idPatterns(what, texts)
	if p.err == nil {
		p.err = err
	}
	return patterns
}

func (p *patternParser) conditions(selects []tko.ConditionSelect) []tko.ConditionSelect {
	for _, c := range selects {
		if err := c.Check(); err != nil && p.err == nil {
			p.err = err
		}
	}
	return selects
}

func (p *patternParser) metadata(what string, texts map[string]string) map[string]tko.Pattern {
	patterns := make(map[string]tko.Pattern, len(texts))
	for key, text := range texts {
		pattern, err := tko.ParseValuePattern(text)
		if err == nil && (key == "" || !record.Storable(key) || !record.Storable(text)) {
			err = tko.Errorf(tko.ErrInvalid, "use a key, and UTF-8 without NUL")
		}
		if err != nil && p.err == nil {
			p.err = tko.Errorf(tko.ErrInvalid, "the %s pattern of the key %.40q: %w", what, key, err)
		}
		patterns[key] = pattern
	}
	return patterns
}

// idPatterns parses patterns of IDs, without duplicates.
func idPatterns(what string, texts []string) ([]tko.Pattern, error) {
	var patterns []tko.Pattern
	for i, text := range texts {
		if slices.Contains(texts[:i], text) {
			continue
		}
		pattern, err := tko.ParsePattern(text)
		if err == nil && !record.Storable(text) {
			err = tko.Errorf(tko.ErrInvalid, "the pattern %.40q is not plain text: use UTF-8 without NUL", text)
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", what, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// limitOf returns a window's limit; negative: none.
func limitOf(w tko.Window) int {
	if w.Max == nil {
		return -1
	}
	return max(*w.Max, -1)
}

func checkAfter(after string) error {
	if !record.Storable(after) {
		return tko.Errorf(tko.ErrInvalid, "the cursor %.40q is not plain text: use the ID of the last entity of the page before", after)
	}
	return nil
}
