package webapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Reasons explain values, selections and changes.
type Reasons interface {
	Blame(ctx context.Context, r tko.BlameRequest) (tko.Blame, error)
	ExplainSite(ctx context.Context, r tko.SiteExplanationRequest) (tko.SiteExplanation, error)
	TemplateImpact(ctx context.Context, r tko.TemplateImpactRequest) (tko.TemplateImpact, error)
	CompareSite(ctx context.Context, id tko.SiteID) (tko.SiteComparison, error)
}

// blame responds with the origins of fields: ?kind=&id=, and &field=, &history=true, and
// &revision=.
func (a *api) blame(r *http.Request) (*blameBody, error) {
	q := queryOf(r)
	request := tko.BlameRequest{Kind: tko.Kind(q.Get("kind")), ID: q.Get("id"), Revision: q.number("revision", 0, 64), Field: q.Get("field")}
	switch text := q.Get("history"); text {
	case "", "false":
	case "true":
		request.History = true
	default:
		q.wrong("history is %q: use true or false", text)
	}
	if q.err != nil {
		return nil, q.err
	}
	b, err := a.reasons.Blame(r.Context(), request)
	if err != nil {
		return nil, err
	}
	body := blameBody{Kind: b.Kind, ID: b.ID, Revision: b.Revision}
	for _, f := range b.Fields {
		body.Fields = append(body.Fields, fieldBody{Resource: f.Resource, Path: f.Path, Value: f.Value, Hidden: f.Hidden, Origin: originOf(b.Origins[f.Origin])})
	}
	for _, c := range b.Changes {
		one := fieldChangeBody{Resource: c.Resource, Path: c.Path, Before: c.Before, After: c.After, Hidden: c.Hidden, Origin: originOf(c.Origin)}
		if len(c.Upstream) > 0 {
			up := originOf(c.Upstream[0])
			one.Upstream = &up
		}
		body.Changes = append(body.Changes, one)
	}
	return &body, nil
}

type blameBody struct {
	Kind     tko.Kind          `json:"kind"`
	ID       string            `json:"id"`
	Revision int64             `json:"revision"`
	Fields   []fieldBody       `json:"fields,omitempty"`
	Changes  []fieldChangeBody `json:"changes,omitempty"`
}

type fieldBody struct {
	Resource string     `json:"resource"`
	Path     string     `json:"path"`
	Value    string     `json:"value,omitempty"`
	Hidden   bool       `json:"hidden,omitempty"`
	Origin   originBody `json:"origin"`
}

type fieldChangeBody struct {
	Resource string      `json:"resource"`
	Path     string      `json:"path"`
	Before   string      `json:"before"`
	After    string      `json:"after"`
	Hidden   bool        `json:"hidden,omitempty"`
	Origin   originBody  `json:"origin"`
	Upstream *originBody `json:"upstream,omitempty"`
}

type originBody struct {
	Source           string    `json:"source"`
	Revision         int64     `json:"revision"`
	Time             time.Time `json:"time"`
	Who              string    `json:"who"`
	Why              string    `json:"why"`
	Template         string    `json:"template,omitempty"`
	TemplateRevision int64     `json:"templateRevision,omitempty"`
	Resource         string    `json:"resource,omitempty"`
	Plugin           string    `json:"plugin,omitempty"`
	PluginRevision   int64     `json:"pluginRevision,omitempty"`
	Rollout          string    `json:"rollout,omitempty"`
	RestoredBy       string    `json:"restoredBy,omitempty"`
	RestoredAt       int64     `json:"restoredAt,omitempty"`
	Collected        bool      `json:"collected,omitempty"`
}

func originOf(o tko.Origin) originBody {
	return originBody{
		Source: o.Source, Revision: o.Revision, Time: o.Time, Who: o.Author.Who, Why: o.Author.Why, Template: string(o.Template), TemplateRevision: o.TemplateRevision,
		Resource: o.Resource, Plugin: o.Plugin, PluginRevision: o.PluginRevision, Rollout: string(o.Rollout), RestoredBy: string(o.RestoredBy), RestoredAt: o.RestoredAt, Collected: o.Collected,
	}
}

// siteExplain responds with whether placements select a site: ?id=, and &deployment= or
// &template=, now or ?asOf= a moment of the past.
func (a *api) siteExplain(r *http.Request) (*explanationBody, error) {
	q := queryOf(r)
	ctx := q.past(r.Context())
	if q.err != nil {
		return nil, q.err
	}
	e, err := a.reasons.ExplainSite(ctx, tko.SiteExplanationRequest{
		Site: tko.SiteID(q.Get("id")), Deployment: tko.DeploymentID(q.Get("deployment")), Template: tko.TemplateID(q.Get("template")),
	})
	if err != nil {
		return nil, err
	}
	body := explanationBody{Site: e.Site, Placements: []placementBody{}}
	for _, p := range e.Placements {
		one := placementBody{Placement: p.Placement, Template: p.Template, Sites: p.Sites, Selected: p.Selected, Unmet: []unmetBody{}, Deployments: orEmpty(p.Deployments), Note: p.Note}
		for _, c := range p.Unmet {
			unmet := unmetBody{Field: c.Field, Wanted: c.Wanted}
			if c.Present {
				unmet.Value = &c.Value
			}
			one.Unmet = append(one.Unmet, unmet)
		}
		body.Placements = append(body.Placements, one)
	}
	return &body, nil
}

// siteDiff responds with the differences between the desired state of a site and its
// actual state: ?id=.
func (a *api) siteDiff(r *http.Request) (*tko.SiteComparison, error) {
	c, err := a.reasons.CompareSite(r.Context(), tko.SiteID(r.URL.Query().Get("id")))
	if err != nil {
		return nil, err
	}
	c.Changes, c.Problems, c.Orphans, c.Unsearched = orEmpty(c.Changes), orEmpty(c.Problems), orEmpty(c.Orphans), orEmpty(c.Unsearched)
	return &c, nil
}

type explanationBody struct {
	Site       tko.SiteID      `json:"site"`
	Placements []placementBody `json:"placements"`
}

type placementBody struct {
	Placement   string             `json:"placement"`
	Template    string             `json:"template"`
	Sites       string             `json:"sites"`
	Selected    bool               `json:"selected"`
	Unmet       []unmetBody        `json:"unmet"`
	Deployments []tko.DeploymentID `json:"deployments"`
	Note        string             `json:"note"`
}

type unmetBody struct {
	Field  string  `json:"field"`
	Value  *string `json:"value,omitempty"`
	Wanted string  `json:"wanted"`
}

// templateImpact responds with what depends on a template: ?id=.
func (a *api) templateImpact(r *http.Request) (*tko.TemplateImpact, error) {
	i, err := a.reasons.TemplateImpact(r.Context(), tko.TemplateImpactRequest{Template: tko.TemplateID(r.URL.Query().Get("id"))})
	if err != nil {
		return nil, err
	}
	i.Revisions, i.Topologies, i.Rollouts, i.Groups = orEmpty(i.Revisions), orEmpty(i.Topologies), orEmpty(i.Rollouts), orEmpty(i.Groups)
	for n := range i.Groups {
		g := &i.Groups[n]
		g.Examples, g.Changes, g.Conflicts = orEmpty(g.Examples), orEmpty(g.Changes), orEmpty(g.Conflicts)
	}
	return &i, nil
}
