package topology

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Unmatched returns the names and selectors of the Sites resources that placements
// of the package use and that match no site, sorted, each once.
func (p *Preparer) Unmatched(ctx context.Context, pkg krm.Package, placements []krm.Identity) ([]string, error) {
	var empty []string
	seen := map[string]bool{}
	for _, id := range placements {
		resource := pkg.Find(id)
		if resource == nil {
			continue
		}
		entries, err := listAt(id, resource, "spec", "templates")
		if err != nil {
			return nil, nil //nolint:nilerr // the evaluation reports it
		}
		for _, entry := range entries {
			m, _ := entry.(map[string]any)
			names, _ := m["sites"].([]any)
			for _, item := range names {
				name, _ := item.(string)
				sites := pkg.Find(krm.Identity{GVK: SitesGVK, Name: name})
				if sites == nil || seen[name] {
					continue
				}
				seen[name] = true
				request, err := readSites(sites)
				if err != nil {
					continue // as above
				}
				found, err := p.sites(ctx, request.resource, tko.SiteSelect{Metadata: request.sel}, 1)
				if err != nil {
					return nil, err
				}
				if len(found) == 0 {
					empty = append(empty, fmt.Sprintf("Sites %q (%s)", name, selectText(request.sel)))
				}
			}
		}
	}
	slices.Sort(empty)
	return empty, nil
}
