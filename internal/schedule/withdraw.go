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
	// Withdraw ends what a plugin does for a site in another system, except for these
	// triggers.
	Withdraw(ctx context.Context, p tko.Plugin, site tko.SiteID, triggers []krm.Identity) error
}

// withdraw ends the work that continues in other systems for a site whose plan no longer
// has it.
func (s *Scheduler) withdraw(ctx context.Context, seen snapshot, p plan, results []result) error {
	w, ok := s.runner.(withdrawer)
	was := scheduledOf(seen.site.Stamp)
	if !ok || p.keep || was == nil || was.Reason != ReasonRunning {
		return nil
	}
	runs := slices.ContainsFunc(results, func(r result) bool { return r.report.Site.Scheduled.Reason == ReasonRunning })
	if runs && was.ObservedRevision == seen.site.Stamp.Revision {
		return nil // it is what runs
	}
	for _, plugin := range seen.plugins {
		var triggers []krm.Identity
		for _, step := range p.steps {
			if step.target == nil && step.plugin.ID() == plugin.ID() {
				triggers = append(triggers, step.trigger.Identity())
			}
		}
		if err := w.Withdraw(ctx, plugin, seen.site.ID, triggers); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends the work that continues in other systems for a site that was deleted. It
// tries once: without the site, no condition reports a failure.
func (s *Scheduler) abandon(ctx context.Context, site tko.SiteID) {
	w, ok := s.runner.(withdrawer)
	if !ok {
		return
	}
	schedule := tko.PluginSchedule
	for plugin, err := range s.client.Plugins(ctx, tko.PluginSelect{Type: &schedule}, tko.ListOptions{}) {
		if err == nil {
			err = w.Withdraw(ctx, plugin, site, nil)
		}
		if err != nil {
			s.options.Log.WarnContext(ctx, "can't end what plugins do for a deleted site", "site", string(site), "plugin", plugin.ID(), "err", err)
		}
	}
}

// running returns the outcome of a site for which a plugin's work continues.
func running(message string) report.Outcome {
	return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonRunning, Message: message}
}
