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
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// A cleaner is a target that cleans up what it applied for a trigger after the
// trigger was removed from the site's package.
type cleaner interface {
	// Same reports whether two triggers, the older first, name the same place.
	Same(former, now krm.Resource) bool
	// Place returns the name of a trigger's place, as in the messages of Leave.
	// It is empty if the trigger is invalid.
	Place(of krm.Resource) string
	// Leave removes or orphans what was applied for a former trigger, as that
	// trigger specifies. now are the current triggers of the same kind. The
	// outcome is final if there is no error and again is 0; otherwise it is to be
	// called again after that time. An empty outcome reports nothing.
	Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Outcome, again time.Duration, err error)
}

// maxFormer is the limit of the revisions of a site that are read to find removed
// triggers.
const maxFormer = 100

// A removedTrigger is a trigger that a former revision of a site's package has.
type removedTrigger struct {
	target  cleaner
	trigger krm.Resource
	now     []krm.Resource // current triggers of the same kind
}

// removals are the differences between former revisions of a site's package and
// the current one.
type removals struct {
	all   []removedTrigger // without those whose place a current trigger names
	since int64            // the oldest revision that matters for them
	back  bool             // a trigger was removed, and is in the package again
}

// findRemovals reads the revisions of the site since it was last scheduled, or, if
// that is earlier, since the removal of a trigger that isn't cleaned up, and
// returns the triggers that were removed.
func (s *Scheduler) findRemovals(ctx context.Context, site tko.Site) (p removals, err error) {
	now := site.Stamp.Revision
	cleaned, scheduled := tko.FindCondition(site.Stamp.Conditions, tko.ConditionCleanedUp), tko.FindCondition(site.Stamp.Conditions, tko.ConditionScheduled)
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
		begin-- // a condition may be as of the revision that removed the trigger
	}
	var seen []removedTrigger
	for revision := begin; revision < now; revision++ {
		former, err := s.client.Site(ctx, site.ID, revision)
		if errors.Is(err, tko.ErrNotFound) {
			gap = gap || revision >= p.since
			continue // no longer retained
		}
		if err != nil {
			return removals{}, fmt.Errorf("reading revision %d of site %q: %w", revision, site.ID, err)
		}
		for _, r := range former.Package {
			t, ok := s.targets[r.GVK()].target.(cleaner)
			if !ok || trigger.ByAgent(r) {
				continue
			}
			d := removedTrigger{target: t, trigger: r, now: ofKind(site.Package, r.GVK())}
			// of those that name the same place, the newest counts
			seen = append(slices.DeleteFunc(seen, d.isNewer), d)
			if revision >= p.since && !d.isIn(d.now) {
				p.all = append(slices.DeleteFunc(p.all, d.isNewer), d)
			}
		}
		for _, d := range seen {
			p.back = p.back || d.isIn(d.now) && !d.isIn(ofKind(former.Package, d.trigger.GVK()))
		}
	}
	if open && gap { // the condition has a place that no retained revision may have
		p.back = s.hasPlaceIn(cleaned.Message, site.Package)
	}
	return p, nil
}

// hasPlaceIn reports whether a message names the place of a trigger of a package.
func (s *Scheduler) hasPlaceIn(message string, pkg krm.Package) bool {
	return slices.ContainsFunc(pkg, func(r krm.Resource) bool {
		t, ok := s.targets[r.GVK()].target.(cleaner)
		return ok && t.Place(r) != "" && strings.Contains(message, t.Place(r))
	})
}

// isNewer reports whether older is an older trigger of the same place.
func (d removedTrigger) isNewer(older removedTrigger) bool {
	return older.target == d.target && d.target.Same(older.trigger, d.trigger)
}

// isIn reports whether any of these triggers names the place of d.
func (d removedTrigger) isIn(triggers []krm.Resource) bool {
	return slices.ContainsFunc(triggers, func(other krm.Resource) bool { return d.target.Same(d.trigger, other) })
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

// cleanUp cleans up what was applied for removed triggers, and writes the result
// into the condition CleanedUp. again is the time until it must be called again;
// 0 if that isn't necessary.
func (s *Scheduler) cleanUp(ctx context.Context, site tko.Site) (again time.Duration, err error) {
	p, err := s.findRemovals(ctx, site)
	if err != nil {
		return 0, err
	}
	was := tko.FindCondition(site.Stamp.Conditions, tko.ConditionCleanedUp)
	var worst report.Outcome
	rank := 0
	if len(p.all) == 0 && p.back && was != nil && was.Status == tko.ConditionFalse {
		worst = report.Outcome{
			Status: tko.ConditionTrue, Reason: trigger.ReasonApplied,
			Message: "the site's package has the removed resource again: TKO manages the objects that it applied",
		}
	}
	for _, d := range p.all {
		v, later, err := d.target.Leave(ctx, d.trigger, d.now, site)
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
		observed = p.since // the next reconciliation begins there, also if a later revision adds the trigger again
	}
	if was != nil && was.Status == worst.Status && was.Reason == worst.Reason && was.Message == worst.Message && was.ObservedRevision == observed {
		return again, nil
	}
	return again, s.write(ctx, []conditionOf{{kind: tko.KindSite, id: string(site.ID), condition: tko.Condition{
		Type: tko.ConditionCleanedUp, Status: worst.Status, Reason: worst.Reason, Message: worst.Message, ObservedRevision: observed,
	}}})
}

// rankOf orders outcomes: unfinished ones are above orphaned objects, and those
// above completed removals.
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
