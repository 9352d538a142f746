package schedule

import (
	"context"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// A withdrawer is a Runner of plugins whose work continues in other systems.
type withdrawer interface {
	// Remember reports which plugins are registered.
	Remember(plugins ...tko.Plugin)
	// Withdraw ends what plugins do for a site in other systems, unless it is wanted.
	Withdraw(ctx context.Context, w tko.Withdrawal) error
}

// withdraw ends the work that continues in other systems for a site whose plan no longer
// has it.
func (s *Scheduler) withdraw(ctx context.Context, seen snapshot, p plan, results []result) error {
	was := tko.FindCondition(seen.site.Stamp.Conditions, tko.ConditionScheduled)
	if p.keep || was == nil || was.Status == tko.ConditionTrue {
		return nil
	}
	running := slices.ContainsFunc(results, func(r result) bool { return r.report.Site.Scheduled.Reason == ReasonRunning })
	// Otherwise it is what runs, or nothing ran.
	changed := !running && was.Reason == ReasonRunning || was.ObservedRevision != seen.site.Stamp.Revision
	wanted := map[string][]krm.Identity{}
	for _, step := range p.steps {
		if step.target == nil {
			wanted[step.plugin.ID()] = append(wanted[step.plugin.ID()], step.trigger.Identity())
		}
	}
	return s.end(ctx, tko.Withdrawal{Entity: string(seen.site.ID), Registered: seen.plugins, Wanted: wanted, Removed: !changed})
}

// abandon ends the work that continues in other systems for a site that was deleted.
func (s *Scheduler) abandon(ctx context.Context, site tko.SiteID) error {
	plugins, err := s.plugins(ctx)
	if err != nil {
		return err
	}
	return s.end(ctx, tko.Withdrawal{Entity: string(site), Registered: plugins})
}

func (s *Scheduler) end(ctx context.Context, of tko.Withdrawal) error {
	w, ok := s.runner.(withdrawer)
	if !ok {
		return nil
	}
	item, _ := tko.ClaimOf(ctx)
	of.Type, of.Attempt = tko.PluginSchedule, item.Attempt
	return w.Withdraw(ctx, of)
}

// running returns the outcome of a site for which a plugin's work continues.
func running(message string) report.Outcome {
	return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonRunning, Message: message}
}
