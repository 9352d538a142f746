package webapi

import (
	"context"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// words are the filters of each kind. They are the flags of the tko command.
var words = map[tko.Kind][]string{
	tko.KindTemplate:   {"id", "metadata"},
	tko.KindSite:       {"id", "template-id", "metadata"},
	tko.KindDeployment: {"parent", "metadata", "template-id", "template-metadata", "site-id", "site-metadata", "prepared", "approved", "outdated"},
	tko.KindPlugin:     {"type", "name", "executor"},
}

// A filter selects entities of a kind.
type filter struct {
	kind  tko.Kind
	query url.Values
}

// filterOf reads the filter of a query, whose other parameters must be among
// those given: a typo would select everything.
func filterOf(kind tko.Kind, query url.Values, others ...string) (filter, error) {
	f := filter{kind: kind, query: url.Values{}}
	for name, values := range query {
		switch {
		case slices.Contains(words[kind], name):
			f.query[name] = values
		case !slices.Contains(others, name):
			return filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is unknown: filters of %ss are %s; other parameters are %s",
				name, kind, strings.Join(words[kind], ", "), strings.Join(others, ", "))
		}
		if name != "after" && slices.Contains(values, "") { // an empty after is the beginning
			return filter{}, tko.Errorf(tko.ErrInvalid, "the parameter %.40q is empty: give it a value, or leave it out", name)
		}
	}
	_, err := f.flags()
	if err == nil {
		_, err = f.metadata("metadata", "template-metadata", "site-metadata")
	}
	return f, err
}

func (f filter) empty() bool { return len(f.query) == 0 }

func (f filter) flags() (map[string]*bool, error) {
	flags := map[string]*bool{}
	for _, name := range []string{"prepared", "approved", "outdated"} {
		text := f.query.Get(name)
		if text == "" {
			continue
		}
		is, err := strconv.ParseBool(text)
		if err != nil || len(f.query[name]) > 1 {
			return nil, tko.Errorf(tko.ErrInvalid, "%s=%.40q is unknown: use true or false, once", name, text)
		}
		flags[name] = &is
	}
	for _, name := range []string{"parent", "type", "executor"} {
		if len(f.query[name]) > 1 {
			return nil, tko.Errorf(tko.ErrInvalid, "there are %d filters %s: use one", len(f.query[name]), name)
		}
	}
	return flags, nil
}

// metadata reads KEY=PATTERN filters by their names.
func (f filter) metadata(names ...string) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, name := range names {
		for _, text := range f.query[name] {
			key, pattern, ok := strings.Cut(text, "=")
			if !ok || key == "" {
				return nil, tko.Errorf(tko.ErrInvalid, "%s=%.80q has no key or pattern: use %s=KEY=PATTERN", name, text, name)
			}
			if all[name] == nil {
				all[name] = map[string]string{}
			}
			if other, ok := all[name][key]; ok && other != pattern {
				return nil, tko.Errorf(tko.ErrInvalid, "%s has two patterns for the key %.80q: use one", name, key)
			}
			all[name][key] = pattern
		}
	}
	return all, nil
}

func (f filter) templates() tko.TemplateSelect {
	metadata, _ := f.metadata("metadata")
	return tko.TemplateSelect{IDs: f.query["id"], Metadata: metadata["metadata"]}
}

func (f filter) sites() tko.SiteSelect {
	metadata, _ := f.metadata("metadata")
	return tko.SiteSelect{IDs: f.query["id"], Templates: f.query["template-id"], Metadata: metadata["metadata"]}
}

func (f filter) deployments() tko.DeploymentSelect {
	flags, _ := f.flags()
	metadata, _ := f.metadata("metadata", "template-metadata", "site-metadata")
	return tko.DeploymentSelect{
		Parent: tko.DeploymentID(f.query.Get("parent")), Templates: f.query["template-id"], Sites: f.query["site-id"],
		Metadata: metadata["metadata"], TemplateMetadata: metadata["template-metadata"], SiteMetadata: metadata["site-metadata"],
		Prepared: flags["prepared"], Approved: flags["approved"], Outdated: flags["outdated"],
	}
}

func (f filter) plugins() tko.PluginSelect {
	sel := tko.PluginSelect{Names: f.query["name"]}
	if text := f.query.Get("type"); text != "" {
		sel.Type = &text
	}
	if text := f.query.Get("executor"); text != "" {
		sel.Executor = &text
	}
	return sel
}

// A liveRow is a row of a list with what counts need.
type liveRow struct {
	id       string
	metadata map[string]string
	template string
	site     string
	summary  tko.Summary
	body     any
}

// rows lists the entities that a filter selects.
func (l *live) rows(ctx context.Context, f filter, options tko.ListOptions) iter.Seq2[liveRow, error] {
	options.Counts = f.kind == tko.KindSite || f.kind == tko.KindTemplate
	switch f.kind {
	case tko.KindTemplate:
		return mapped(l.catalog.Templates(ctx, f.templates(), options), templateLive)
	case tko.KindSite:
		return mapped(l.catalog.Sites(ctx, f.sites(), options), siteLive)
	case tko.KindPlugin:
		return mapped(l.catalog.Plugins(ctx, f.plugins(), options), pluginLive)
	case tko.KindDeployment:
	}
	return mapped(l.catalog.Deployments(ctx, f.deployments(), options), deploymentLive)
}

func mapped[T any](list iter.Seq2[T, error], row func(T) liveRow) iter.Seq2[liveRow, error] {
	return func(yield func(liveRow, error) bool) {
		for entity, err := range list {
			if err != nil {
				yield(liveRow{}, err)
				return
			}
			if !yield(row(entity), nil) {
				return
			}
		}
	}
}

type summaryBody struct {
	State   tko.State `json:"state,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   int64     `json:"since,omitempty"` // Unix milliseconds
}

func summaryOf(s tko.Summary) summaryBody {
	body := summaryBody{State: s.State, Reason: s.Reason, Message: s.Message}
	if !s.Since.IsZero() {
		body.Since = s.Since.UnixMilli()
	}
	return body
}

func templateLive(t tko.Template) liveRow {
	return liveRow{id: string(t.ID), metadata: t.Metadata, body: struct {
		templateBody
		summaryBody
	}{templateRow(t), summaryBody{}}}
}

func siteLive(s tko.Site) liveRow {
	summary := s.Summary()
	return liveRow{id: string(s.ID), metadata: s.Metadata, template: string(s.Template), site: string(s.ID), summary: summary, body: struct {
		siteBody
		summaryBody
	}{siteRow(s), summaryOf(summary)}}
}

func deploymentLive(d tko.Deployment) liveRow {
	summary := d.Summary()
	return liveRow{id: string(d.ID), metadata: d.Metadata, template: string(d.Template), site: string(d.Site), summary: summary, body: struct {
		deploymentBody
		summaryBody
	}{deploymentRow(d), summaryOf(summary)}}
}

func pluginLive(p tko.Plugin) liveRow {
	summary := p.Summary()
	metadata := maps.Clone(p.Properties)
	for key := range metadata {
		if isSecret(key) {
			delete(metadata, key)
		}
	}
	return liveRow{id: p.ID(), metadata: metadata, summary: summary, body: struct {
		pluginBody
		summaryBody
	}{pluginRow(p), summaryOf(summary)}}
}
