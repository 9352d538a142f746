package catalog

import (
	"context"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// SiteHold returns why changes of a site must not be scheduled now: a rollout with
// limits.apart is changing a site that must not be changed at the same time. "" if nothing
// keeps the site from being changed.
func (s *Service) SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error) {
	if _, _, err := s.enter(ctx, "", access.Schedule); err != nil {
		return "", err
	}
	entries, err := s.store.ApartFlights(ctx)
	if err != nil || len(entries) == 0 {
		return "", err
	}
	sites := []string{string(id)}
	for _, e := range entries {
		sites = append(sites, string(e.Site))
	}
	metadata, err := s.metadataOf(ctx, tko.KindSite, sites)
	if err != nil {
		return "", err
	}
	for i := range entries {
		entries[i].Now = metadata[string(entries[i].Site)]
	}
	return execute.Hold(entries, id, metadata[string(id)]), nil
}
