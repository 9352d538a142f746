package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
)

const (
	// reasonThawed is the reason of a Frozen condition that is False.
	reasonThawed = "Thawed"
	// maxFrozen is the maximum time until a frozen site is reconciled again: its
	// metadata may have changed. The end of a freeze by a user makes its work due.
	maxFrozen = 5 * time.Minute
)

// halted returns what stops hold of a site, and all of it if a freeze selects its metadata. A reconciliation ends when that becomes more.
func (s *Scheduler) halted(ctx context.Context, id tko.SiteID, metadata map[string]string) (tko.SiteStop, error) {
	stop, err := s.client.SiteStop(ctx, id)
	if err != nil || stop.Whole {
		return stop, err
	}
	freezes, err := s.client.Freezes(ctx)
	if err != nil {
		return stop, fmt.Errorf("reading the freezes: %w", err)
	}
	if f, frozen := tko.Frozen(freezes, metadata, time.Now()); frozen {
		stop = tko.SiteStop{Whole: true, Reason: freezeText(id, f)}
	}
	return stop, nil
}

func freezeText(id tko.SiteID, f tko.Freeze) string {
	return fmt.Sprintf("site %q is frozen until %s by %q: %s", id, f.Until.UTC().Format(time.RFC3339), f.By.Who, f.Reason)
}

// freeze returns how long the work of a site waits because the site is stopped, frozen or
// suspended; 0 if it isn't. The conditions of the site, and of the deployments that wait,
// report why.
func (s *Scheduler) freeze(ctx context.Context, seen snapshot, p plan) (time.Duration, error) {
	freezes, err := s.client.Freezes(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the freezes: %w", err)
	}
	now := time.Now()
	f, frozen := tko.Frozen(freezes, seen.site.Metadata, now)
	was := tko.FindCondition(seen.site.Stamp.Conditions, tko.ConditionFrozen)
	suspended := tko.Suspended(seen.site.Metadata)
	if !frozen && !suspended && !seen.stop.Whole {
		if was == nil || was.Status != tko.ConditionTrue {
			return 0, nil
		}
		return 0, s.write(ctx, siteCondition(seen.site, tko.ConditionFrozen, report.Outcome{
			Status: tko.ConditionFalse, Reason: reasonThawed, Message: "no stop or freeze selects the site any more, and it is not suspended",
		}))
	}
	if len(p.steps) == 0 && len(p.deployments)+len(p.suspended) == 0 && was == nil {
		if seen.stop.Whole {
			return maxFrozen, nil
		}
		return 0, nil // there is nothing to hold
	}
	reason, wait := tko.ReasonFrozen, min(max(f.Until.Sub(now), time.Second), maxFrozen)
	until := freezeText(seen.site.ID, f)
	if suspended {
		reason, wait = tko.ReasonSuspended, maxFrozen
		until = tko.SuspendedText(tko.KindSite, string(seen.site.ID))
	}
	if seen.stop.Whole {
		reason, wait, until = tko.ReasonStopped, maxFrozen, seen.stop.Reason
	}
	all := append(suspensions(seen), waiting(p, reason, until)...)
	all = append(all, siteCondition(seen.site, tko.ConditionFrozen, report.Outcome{
		Status: tko.ConditionTrue, Reason: reason, Message: until,
	})...)
	if err := s.write(ctx, all); err != nil {
		return 0, err
	}
	return wait, nil
}

// awaits returns how long the work of a site waits because its first template doesn't exist
// yet, which may have its targets; 0 if it doesn't. The template changes the site, which makes
// its work due.
func (s *Scheduler) awaits(ctx context.Context, seen snapshot, p plan) (time.Duration, error) {
	if seen.site.AwaitedTemplate == "" || seen.site.Template != "" {
		return 0, nil
	}
	why := fmt.Sprintf("site %q waits for its template %q", seen.site.ID, seen.site.AwaitedTemplate)
	return maxFrozen, s.write(ctx, waiting(p, tko.ReasonWaitsForReferences, why))
}

// isScheduled reports whether the site has the newest revision of a deployment.
func isScheduled(d tko.Deployment) bool {
	c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
	return c != nil && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision
}

// waiting returns the conditions of the deployments that wait to be scheduled.
func waiting(p plan, reason, why string) []conditionOf {
	var all []conditionOf
	for _, d := range p.deployments {
		all = append(all, held(d, reason, why)...)
	}
	return all
}

// held returns the condition of a deployment that waits; none if the site has it.
func held(d tko.Deployment, reason, until string) []conditionOf {
	if isScheduled(d) {
		return nil
	}
	return deploymentCondition(d, tko.ConditionScheduled, report.Outcome{
		Status: tko.ConditionFalse, Reason: reason, Message: "it waits, because " + until,
	})
}

// suspensions returns the conditions of the deployments that are suspended or stopped, and of those
// that were. The others of a deployment stay: nothing is observed while it is suspended.
func suspensions(seen snapshot) []conditionOf {
	var all []conditionOf
	for _, d := range seen.deployments {
		if !seen.holds(d) {
			if c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionFrozen); c != nil && c.Status == tko.ConditionTrue {
				all = append(all, deploymentCondition(d, tko.ConditionFrozen, report.Outcome{
					Status: tko.ConditionFalse, Reason: reasonThawed, Message: "it is not suspended or stopped",
				})...)
			}
			continue
		}
		reason, until := seen.why(d)
		all = append(all, deploymentCondition(d, tko.ConditionFrozen, report.Outcome{
			Status: tko.ConditionTrue, Reason: reason, Message: until,
		})...)
		if d.Prepared && d.Approved {
			all = append(all, held(d, reason, until)...)
		}
	}
	return all
}

// apartRetry is the time until a site is examined again that waits for a rollout.
const apartRetry = 15 * time.Second

// apart returns how long the work of a site waits because a rollout is changing a site that
// must not be changed at the same time; 0 if it doesn't. A site without new revisions goes
// on: what runs there is observed, and what was deleted is removed.
func (s *Scheduler) apart(ctx context.Context, seen snapshot, p plan) (time.Duration, error) {
	if !slices.ContainsFunc(p.deployments, func(d tko.Deployment) bool { return !isScheduled(d) }) {
		return 0, nil
	}
	why, err := s.client.SiteHold(ctx, seen.site.ID)
	if err != nil {
		return 0, fmt.Errorf("asking for rollouts that keep the site apart: %w", err)
	}
	if why == "" {
		return 0, nil
	}
	return apartRetry, s.write(ctx, waiting(p, tko.ReasonApart, why))
}
