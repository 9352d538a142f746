package grpcapi

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
)

// A WhyBackend implements tko.Why.
type WhyBackend interface {
	Blame(ctx context.Context, r tko.BlameRequest) (tko.Blame, error)
	ExplainSite(ctx context.Context, r tko.SiteExplanationRequest) (tko.SiteExplanation, error)
	TemplateImpact(ctx context.Context, r tko.TemplateImpactRequest) (tko.TemplateImpact, error)
}

// why implements tko.Why on a backend.
type why struct {
	tkopb.UnimplementedWhyServer

	backend Backend
}

func (w *why) Blame(ctx context.Context, m *tkopb.GetBlame) (*tkopb.Blame, error) {
	return wire.Then(wire.NewBlame)(w.backend.Blame(ctx, wire.GetBlame.Read(m)))
}

func (w *why) ExplainSite(ctx context.Context, m *tkopb.GetSiteExplanation) (*tkopb.SiteExplanation, error) {
	ctx, err := past(ctx, m)
	if err != nil {
		return nil, err
	}
	return wire.Then(wire.SiteExplanation.Write)(w.backend.ExplainSite(ctx, wire.GetSiteExplanation.Read(m)))
}

func (w *why) GetTemplateImpact(ctx context.Context, m *tkopb.GetTemplateImpact) (*tkopb.TemplateImpact, error) {
	r, err := wire.GetTemplateImpact(m)
	if err != nil {
		return nil, err
	}
	return wire.Then(wire.TemplateImpact.Write)(w.backend.TemplateImpact(ctx, r))
}
