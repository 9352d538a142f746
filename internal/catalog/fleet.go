package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Fleet returns the summary of the selected sites and of the deployments at them, as far as the
// caller may read them: others are in none of its numbers. Of everything, for callers who may read
// all sites and deployments, the store has the numbers at hand, and no change is missing.
// Otherwise each entity is read: the sites in one snapshot, and then the deployments.
func (s *Entities) Fleet(ctx context.Context, sel tko.FleetSelect) (tko.Fleet, error) {
	if len(sel.Sites) == 0 && len(sel.SiteMetadata) == 0 {
		if fleet, ok, err := s.FleetAtHand(ctx); ok || err != nil {
			return fleet, err
		}
	}
	ctx, _, err := s.rights.Reads(ctx, tko.KindDeployment)
	if err != nil {
		return tko.Fleet{}, err
	}
	position, err := s.store.Head(ctx)
	if err != nil {
		return tko.Fleet{}, err
	}
	now, count := time.Now(), new(tko.FleetCount)
	for site, err := range s.Sites(ctx, tko.SiteSelect{IDs: sel.Sites, Metadata: sel.SiteMetadata}, tko.ListOptions{}) {
		if err != nil {
			return tko.Fleet{}, err
		}
		count.AddSite(site, 1)
	}
	for d, err := range s.Deployments(ctx, tko.DeploymentSelect{Sites: sel.Sites, SiteMetadata: sel.SiteMetadata}, tko.ListOptions{}) {
		if err != nil {
			return tko.Fleet{}, err
		}
		count.AddDeployment(d, 1)
	}
	fleet := count.Fleet()
	fleet.Position, fleet.Time = position, now
	return fleet, nil
}

// FleetAtHand returns the summary of all sites and deployments without reading each. ok is false
// if the caller may not read all of them, or if the store doesn't have the numbers now: count
// them then.
func (s *Entities) FleetAtHand(ctx context.Context) (fleet tko.Fleet, ok bool, err error) {
	ctx, w, err := s.rights.Reads(ctx, tko.KindDeployment)
	if err != nil {
		return tko.Fleet{}, false, err
	}
	view := w.Caller().View()
	if !view.Of(tko.KindSite).IsAll() || !view.Of(tko.KindDeployment).IsAll() || !tko.AsOfOf(ctx).IsZero() {
		return tko.Fleet{}, false, nil
	}
	return s.fleets.atHand(ctx, s.store)
}

// A fleetAtHand is the newest summary of the whole fleet. Callers that ask at the same time share
// one that was begun after they asked, so many dashboards cost as much as a few.
type fleetAtHand struct {
	reading pause.Mutex

	begun time.Time
	fleet tko.Fleet
	ok    bool
}

func (f *fleetAtHand) atHand(ctx context.Context, store record.Tallier) (fleet tko.Fleet, ok bool, err error) {
	asked := time.Now()
	unlock, err := f.reading.Lock(ctx)
	if err != nil {
		return tko.Fleet{}, false, err
	}
	defer unlock()
	if !f.begun.After(asked) {
		begun := time.Now()
		tally, ok, err := store.Tally(ctx)
		if err != nil {
			return tko.Fleet{}, false, err
		}
		f.begun, f.fleet, f.ok = begun, tko.Fleet{}, ok
		if ok {
			f.fleet = fleetOf(tally)
			f.fleet.Time = begun
		}
	}
	fleet = f.fleet
	fleet.Failures, fleet.Waits = slices.Clone(fleet.Failures), slices.Clone(fleet.Waits)
	return fleet, f.ok, nil
}

// fleetOf returns the summary of a tally.
func fleetOf(tally record.Tally) tko.Fleet {
	count := new(tko.FleetCount)
	for _, c := range tally.Classes {
		if n := int(c.Count); c.Kind == tko.KindSite {
			count.AddSite(c.Site(), n)
		} else {
			count.AddDeployment(c.Deployment(), n)
		}
	}
	for _, oldest := range tally.Oldest {
		count.SetOldest(oldest.Key.Kind, oldest.Key.ID, oldest.Condition)
	}
	fleet := count.Fleet()
	fleet.Position, fleet.Exact = tally.Position, true
	return fleet
}
