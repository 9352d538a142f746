package webapi

import (
	"context"
	"iter"
	"maps"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

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
func (l *live) rows(ctx context.Context, f filter.Filter, options tko.ListOptions) iter.Seq2[liveRow, error] {
	options.Counts = f.Kind() == tko.KindSite || f.Kind() == tko.KindTemplate
	switch f.Kind() {
	case tko.KindTemplate:
		return mapped(l.catalog.Templates(ctx, f.Templates(), options), templateLive)
	case tko.KindSite:
		return mapped(l.catalog.Sites(ctx, f.Sites(), options), siteLive)
	case tko.KindPlugin:
		return mapped(l.catalog.Plugins(ctx, f.Plugins(), options), pluginLive)
	case tko.KindRollout:
		return mapped(l.catalog.Rollouts(ctx, f.Rollouts(), options), rolloutLive)
	case tko.KindDeployment:
	}
	return mapped(l.catalog.Deployments(ctx, f.Deployments(), options), deploymentLive)
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

func rolloutLive(r tko.Rollout) liveRow {
	summary := r.Summary()
	return liveRow{id: string(r.ID), metadata: r.Metadata, summary: summary, body: struct {
		ID       tko.RolloutID     `json:"id"`
		Metadata map[string]string `json:"metadata"`
		stampBody
		summaryBody
	}{r.ID, orEmptyMap(r.Metadata), stampOf(r.Stamp), summaryOf(summary)}}
}
