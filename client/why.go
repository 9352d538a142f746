package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Blame returns where the values of an entity's package come from.
func (c *Client) Blame(ctx context.Context, r tko.BlameRequest) (tko.Blame, error) {
	m, err := callAgain(ctx, c, c.why.Blame, wire.NewGetBlame(r))
	if err != nil {
		return tko.Blame{}, err
	}
	return wire.Blame(m), nil
}

// ExplainSite returns whether each placement of a topology selects a site, and if not
// the conditions that the site doesn't meet.
func (c *Client) ExplainSite(ctx context.Context, r tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	request := wire.NewGetSiteExplanation(r)
	request.AsOf = tko.AsOfOf(ctx).String()
	m, err := callAgain(ctx, c, c.why.ExplainSite, request)
	if err != nil {
		return tko.SiteExplanation{}, err
	}
	return wire.SiteExplanation(m), nil
}

// TemplateImpact returns what depends on a template, and what a change of it would touch.
func (c *Client) TemplateImpact(ctx context.Context, r tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	m, err := wire.NewGetTemplateImpact(r, c.options.PackageFormat)
	if err != nil {
		return tko.TemplateImpact{}, err
	}
	response, err := callAgain(ctx, c, c.why.GetTemplateImpact, m)
	if err != nil {
		return tko.TemplateImpact{}, err
	}
	return wire.TemplateImpact(response), nil
}
