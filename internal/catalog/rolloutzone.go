package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// zoneBatch is the number of drafts whose sites are read at once. Drafts have packages.
const zoneBatch = 100

// A zoneCheck makes drafts invalid whose sites have metadata that names no time zone, if
// a window of the rollout depends on it: the window would open there at another time than
// the author of the rollout expects. It passes drafts on in their order.
type zoneCheck struct {
	core    *core
	windows spec.Windows
	next    func(plan.Draft) error

	pending []plan.Draft
	sites   map[tko.SiteID]string // findings, "" if there is none
}

func (z *zoneCheck) add(ctx context.Context, d plan.Draft) error {
	if !slices.ContainsFunc(z.windows, func(w spec.Window) bool { return w.Key != "" }) {
		return z.next(d)
	}
	if z.pending = append(z.pending, d); len(z.pending) < zoneBatch {
		return nil
	}
	return z.flush(ctx)
}

// flush passes on the drafts that are left.
func (z *zoneCheck) flush(ctx context.Context) error {
	if err := z.read(ctx); err != nil {
		return err
	}
	for _, d := range z.pending {
		if finding := z.sites[d.Site]; finding != "" && d.Kind.Applies() {
			d.Kind, d.After, d.AfterState, d.Unknown, d.Findings = plan.Invalid, plan.Digest{}, nil, nil, []string{finding}
		}
		if err := z.next(d); err != nil {
			return err
		}
	}
	z.pending = z.pending[:0]
	return nil
}

// read checks the sites of the pending drafts.
func (z *zoneCheck) read(ctx context.Context) error {
	var ids []string
	for _, d := range z.pending {
		if _, known := z.sites[d.Site]; !known && d.Site != "" {
			z.sites[d.Site] = ""
			ids = append(ids, string(d.Site))
		}
	}
	metadata, err := z.core.metadataOf(ctx, tko.KindSite, ids)
	if err != nil {
		return err
	}
	for id, values := range metadata {
		if key, value, unknown := z.windows.UnknownZone(values); unknown {
			z.sites[tko.SiteID(id)] = fmt.Sprintf("the metadata %q of site %q is %.100q, which is no time zone, so the window of the rollout isn't known there: set it to one such as UTC or Europe/Berlin, or remove it, "+
				"and plan again", key, id, value)
		}
	}
	return nil
}
