package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// A leaver is a target that does something about what it did for a trigger that
// a site's package no longer has.
type leaver interface {
	// Same says whether two triggers, the older first, are about one place.
	Same(former, now krm.Resource) bool
	// Place names the place of a trigger as verdicts of Leave do; empty if the
	// trigger is invalid.
	Place(trigger krm.Resource) string
	// Leave does what a former trigger says about leaving, given those that
	// there are now. The verdict is final if there is no error and again is 0;
	// nothing is said if it is empty.
	Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Outcome, again time.Duration, err error)
}

// maxFormer bounds how many revisions of a site are read to find what it left.
const maxFormer = 100

// A departure is a trigger that a site's package no longer has.
type departure struct {
	from    leaver
	trigger krm.Resource
	now     []krm.Resource // of the same kind
}

// A parting is what former revisions of a site's package had.
type parting struct {
	all   []departure // triggers that the package has no more
	since int64       // the oldest revision that matters for them
	back  bool        // a trigger that the package had lost is in it again
}

// departures finds the triggers that the site's package had since it was
// scheduled last, or since something that it left and that isn't gone, and has
// no more.
func (s *Scheduler) departures(ctx context.Context, site tko.Site) (p parting, err error) {
	now := site.Stamp.Revision
	cleaned, scheduled := conditionIn(site.Stamp, tko.ConditionCleanedUp), scheduledOf(site.Stamp)
	if scheduled != nil {
		p.since = scheduled.ObservedRevision
	}
	open := cleaned != nil && cleaned.Status == tko.ConditionFalse
	if open && (!isFinal(cleaned.Reason) || p.since < now) {
		p.since = min(cmp.Or(p.since, now), cleaned.ObservedRevision)
	}
	if p.since == 0 || p.since >= now {
		return p, nil
	}
	begin := max(p.since, now-maxFormer)
	gap := begin > p.since
	if open && begin > 1 {
		begin-- // a condition may be as of the revision that lost the trigger
	}
	var seen []departure
	for revision := begin; revision < now; revision++ {
		former, err := s.client.Site(ctx, site.ID, revision)
		if errors.Is(err, tko.ErrNotFound) {
			gap = gap || revision >= p.since
			continue // no longer kept
		}
		if err != nil {
			return parting{}, fmt.Errorf("reading revision %d of site %q: %w", revision, site.ID, err)
		}
		for _, r := range former.Package {
			l, ok := s.targets[r.GVK()].(leaver)
			if !ok {
				continue
			}
			d := departure{from: l, trigger: r, now: ofKind(site.Package, r.GVK())}
			// the newest of those that are about one place counts
			seen = append(slices.DeleteFunc(seen, d.isNewer), d)
			if revision >= p.since && !d.isIn(d.now) {
				p.all = append(slices.DeleteFunc(p.all, d.isNewer), d)
			}
		}
		for _, d := range seen {
			p.back = p.back || d.isIn(d.now) && !d.isIn(ofKind(former.Package, d.trigger.GVK()))
		}
	}
	if open && gap { // the condition tells more than the revisions that are left
		p.back = s.hasPlaceIn(cleaned.Message, site.Package)
	}
	return p, nil
}

// hasPlaceIn says whether a message names the place of a trigger of a package.
func (s *Scheduler) hasPlaceIn(message string, pkg krm.Package) bool {
	return slices.ContainsFunc(pkg, func(r krm.Resource) bool {
		l, ok := s.targets[r.GVK()].(leaver)
		return ok && l.Place(r) != "" && strings.Contains(message, l.Place(r))
	})
}

// isNewer says whether another departure is an older one from the same place.
func (d departure) isNewer(older departure) bool {
	return older.from == d.from && d.from.Same(older.trigger, d.trigger)
}

// isIn says whether any of these triggers is about the place that d is from.
func (d departure) isIn(triggers []krm.Resource) bool {
	return slices.ContainsFunc(triggers, func(other krm.Resource) bool { return d.from.Same(d.trigger, other) })
}

func ofKind(pkg krm.Package, kind krm.GVK) []krm.Resource {
	var all []krm.Resource
	for _, r := range pkg {
		if r.GVK() == kind {
			all = append(all, r)
		}
	}
	return all
}

func isFinal(reason string) bool { return reason == reasonLeft }

// leave does what former triggers say, and says what came of it: again is when
// to go on.
func (s *Scheduler) leave(ctx context.Context, site tko.Site) (again time.Duration, err error) {
	p, err := s.departures(ctx, site)
	if err != nil {
		return 0, err
	}
	was := conditionIn(site.Stamp, tko.ConditionCleanedUp)
	var worst report.Outcome
	rank := 0
	if len(p.all) == 0 && p.back && was != nil && was.Status == tko.ConditionFalse {
		worst = report.Outcome{
			Status: tko.ConditionTrue, Reason: kubernetes.ReasonApplied,
			Message: "what was taken out of the site's package is in it again: TKO looks after what was applied there",
		}
	}
	for _, d := range p.all {
		v, later, err := d.from.Leave(ctx, d.trigger, d.now, site)
		if err != nil {
			return 0, err
		}
		if later > 0 && (again == 0 || later < again) {
			again = later
		}
		if r := rankOf(v, later > 0); r > rank {
			worst, rank = v, r
		}
	}
	if worst.Status == "" {
		return again, nil
	}
	observed := site.Stamp.Revision
	if worst.Status == tko.ConditionFalse {
		observed = p.since // from where to go on, also when a later revision brings it back
	}
	if was != nil && was.Status == worst.Status && was.Reason == worst.Reason && was.Message == worst.Message && was.ObservedRevision == observed {
		return again, nil
	}
	return again, s.write(ctx, []conditionOf{{kind: tko.KindSite, id: string(site.ID), condition: tko.Condition{
		Type: tko.ConditionCleanedUp, Status: worst.Status, Reason: worst.Reason, Message: worst.Message, ObservedRevision: observed,
	}}})
}

// rankOf puts what isn't finished before what was left, and that before what is
// gone.
func rankOf(v report.Outcome, unfinished bool) int {
	switch {
	case v.Status == "":
		return 0
	case unfinished:
		return 3
	case v.Status == tko.ConditionFalse:
		return 2
	default:
		return 1
	}
}
