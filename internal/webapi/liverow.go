package webapi

import (
	"maps"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/krm"
)

// A liveRow is a row of a list with what counts need.
type liveRow struct {
	id       string
	metadata map[string]string
	template string
	site     string
	summary  tko.Summary
	stamp    tko.Stamp
	pkg      krm.Package // only of single entities
	body     any
}

// bodyOf returns the body of a row, whose type is the one that [live.routes] names for its kind.
func bodyOf[R any](row liveRow) R {
	return row.body.(R) //nolint:forcetypeassert,errcheck // a test reads rows of each kind
}

// liveRows are the rows of lists, and what else single entities have.
var liveRows = filter.View[liveRow]{Deployment: deploymentLive, Site: siteLive, Template: templateLive, Plugin: pluginLive, Rollout: rolloutLive}

type summaryBody struct {
	State   tko.State `json:"state,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   int64     `json:"since,omitempty"` // Unix milliseconds
}

// The rows of each kind, with the states of their entities.
type (
	templateRowBody struct {
		templateBody
		summaryBody
	}
	siteRowBody struct {
		siteBody
		summaryBody
	}
	deploymentRowBody struct {
		deploymentBody
		summaryBody
	}
	pluginRowBody struct {
		pluginBody
		summaryBody
	}
	rolloutRowBody struct {
		ID       tko.RolloutID     `json:"id"`
		Metadata map[string]string `json:"metadata"`
		stampBody
		summaryBody
	}
)

func summaryOf(s tko.Summary) summaryBody {
	body := summaryBody{State: s.State, Reason: s.Reason, Message: s.Message}
	if !s.Since.IsZero() {
		body.Since = s.Since.UnixMilli()
	}
	return body
}

func templateLive(t tko.Template) liveRow {
	return liveRow{id: string(t.ID), stamp: t.Stamp, pkg: t.Package, metadata: t.Metadata, body: templateRowBody{templateRow(t), summaryBody{}}}
}

func siteLive(s tko.Site) liveRow {
	summary := s.Summary()
	return liveRow{id: string(s.ID), stamp: s.Stamp, pkg: s.Package, metadata: s.Metadata, template: string(s.Template), site: string(s.ID), summary: summary, body: siteRowBody{siteRow(s), summaryOf(summary)}}
}

func deploymentLive(d tko.Deployment) liveRow {
	summary := d.Summary()
	return liveRow{id: string(d.ID), stamp: d.Stamp, pkg: d.Package, metadata: d.Metadata, template: string(d.Template), site: string(d.Site), summary: summary, body: deploymentRowBody{deploymentRow(d), summaryOf(summary)}}
}

func pluginLive(p tko.Plugin) liveRow {
	summary := p.Summary()
	metadata := maps.Clone(p.Properties)
	for key := range metadata {
		if isSecret(key) {
			delete(metadata, key)
		}
	}
	return liveRow{id: p.ID(), stamp: p.Stamp, metadata: metadata, summary: summary, body: pluginRowBody{pluginRow(p), summaryOf(summary)}}
}

func rolloutLive(r tko.Rollout) liveRow {
	summary := r.Summary()
	return liveRow{id: string(r.ID), stamp: r.Stamp, pkg: r.Package, metadata: r.Metadata, summary: summary, body: rolloutRowBody{r.ID, orEmptyMap(r.Metadata), stampOf(r.Stamp), summaryOf(summary)}}
}
