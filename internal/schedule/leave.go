package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// A leaver is a target that does something about what it did for a trigger that
// a site's package no longer has.
type leaver interface {
	// Same says whether two triggers, the older first, are about one place.
	Same(former, now krm.Resource) bool
	// Leave does what a former trigger says about leaving, given those that
	// there are now. The verdict is final if there is no error and again is 0;
	// nothing is said if it is empty.
	Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Verdict, again time.Duration, err error)
}

// maxFormer bounds how many revisions of a site are read to find what it left.
const maxFormer = 100

// A departure is a trigger that a site's package no longer has.
type departure struct {
	from    leaver
	trigger krm.Resource
	now     []krm.Resource // of the same kind
}

// departures finds the triggers that the site's package had since it was
// scheduled last, or since something that isn't finished yet, and has no more;
// and the revision that this is.
func (s *Scheduler) departures(ctx context.Context, site tko.Site) (all []departure, since int64, err error) {
	cleaned := conditionIn(site.Stamp, tko.ConditionCleanedUp)
	switch scheduled := scheduledOf(site.Stamp); {
	case cleaned != nil && cleaned.Status == tko.ConditionFalse && !isFinal(cleaned.Reason):
		since = cleaned.ObservedRevision
	case scheduled != nil:
		since = scheduled.ObservedRevision
	}
	if since == 0 || since >= site.Stamp.Revision {
		return nil, 0, nil
	}
	for revision := max(since, site.Stamp.Revision-maxFormer); revision < site.Stamp.Revision; revision++ {
		former, err := s.client.Site(ctx, site.ID, revision)
		if errors.Is(err, tko.ErrNotFound) {
			continue // no longer kept
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading revision %d of site %q: %w", revision, site.ID, err)
		}
		for _, r := range former.Package {
			l, ok := s.targets[r.GVK()].(leaver)
			if !ok {
				continue
			}
			d := departure{from: l, trigger: r}
			for _, other := range site.Package {
				if other.GVK() == r.GVK() {
					d.now = append(d.now, other)
				}
			}
			same := func(other krm.Resource) bool { return l.Same(r, other) }
			if slices.ContainsFunc(d.now, same) {
				continue
			}
			// the newest of those that are about one place counts
			all = slices.DeleteFunc(all, func(older departure) bool { return older.from == l && l.Same(older.trigger, r) })
			all = append(all, d)
		}
	}
	return all, since, nil
}

func isFinal(reason string) bool { return reason == reasonLeft }

// leave does what former triggers say, and says what came of it: again is when
// to go on.
func (s *Scheduler) leave(ctx context.Context, site tko.Site) (again time.Duration, err error) {
	all, since, err := s.departures(ctx, site)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	var worst report.Verdict
	rank := 0
	for _, d := range all {
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
	if again > 0 {
		observed = since // from where to go on
	}
	was := conditionIn(site.Stamp, tko.ConditionCleanedUp)
	if was != nil && was.Status == worst.Status && was.Reason == worst.Reason && was.Message == worst.Message && was.ObservedRevision == observed {
		return again, nil
	}
	return again, s.write(ctx, []conditionOf{{kind: tko.KindSite, id: string(site.ID), condition: tko.Condition{
		Type: tko.ConditionCleanedUp, Status: worst.Status, Reason: worst.Reason, Message: worst.Message, ObservedRevision: observed,
	}}})
}

// rankOf puts what isn't finished before what was left, and that before what is
// gone.
func rankOf(v report.Verdict, unfinished bool) int {
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
