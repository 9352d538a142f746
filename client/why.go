package client

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// Blame returns where the values of an entity's package come from.
func (c *Client) Blame(ctx context.Context, r tko.BlameRequest) (tko.Blame, error) {
	return wire.Then(wire.Blame)(call(ctx, c, c.why.Blame, wire.GetBlame.Write(r)))
}

// ExplainSite returns whether each placement of a topology selects a site, and if not
// the conditions that the site doesn't meet.
func (c *Client) ExplainSite(ctx context.Context, r tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	request := wire.GetSiteExplanation.Write(r)
	request.AsOf = tko.AsOfOf(ctx).String()
	return wire.Then(wire.SiteExplanation.Read)(call(ctx, c, c.why.ExplainSite, request))
}

// TemplateImpact returns what depends on a template, and what a change of it would touch.
func (c *Client) TemplateImpact(ctx context.Context, r tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	m, err := wire.NewGetTemplateImpact(r, c.options.PackageFormat)
	if err != nil {
		return tko.TemplateImpact{}, err
	}
	return wire.Then(wire.TemplateImpact.Read)(call(ctx, c, c.why.GetTemplateImpact, m))
}
