package schedule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of Scheduled conditions.
const (
	ReasonScheduled   = "Scheduled"   // all that the site triggers was given the deployments
	ReasonFailed      = "Failed"      // something was not; it is tried again
	ReasonInvalid     = "Invalid"     // something can't be; a change of the site's package helps
	ReasonNoScheduler = "NoScheduler" // no resource of the site's package triggers anything
	ReasonUnscheduled = "Unscheduled" // it was scheduled, and was taken away
)

// snapshot is a site as it was observed.
type snapshot struct {
	site        tko.Site
	deployments []tko.Deployment // all at the site, with packages
	plugins     []tko.Plugin     // of type schedule
}

// plan is what is to be done for a site.
type plan struct {
	steps       []step
	deployments []tko.Deployment // that are to be there, cluster-scoped resources first
}

// step is one trigger and what it triggers: a built-in target or a plugin.
type step struct {
	trigger krm.Resource
	target  target
	plugin  tko.Plugin
}

func (s step) String() string {
	if s.target != nil {
		return s.trigger.Identity().String()
	}
	return fmt.Sprintf("plugin %q for %s", s.plugin.ID(), s.trigger.Identity())
}

// result is what came of a step.
type result struct {
	removed []tko.DeploymentID
	err     error
}

// conditionOf is a condition that is to be written.
type conditionOf struct {
	kind      tko.Kind
	id        string
	condition tko.Condition
}

// decide says what is to be done: every resource that triggers goes to all
// that it triggers, in the order of the site's package.
func decide(seen snapshot, targets map[krm.GVK]target) plan {
	var p plan
	for _, r := range seen.site.Package {
		gvk := r.GVK()
		if t, ok := targets[gvk]; ok {
			p.steps = append(p.steps, step{trigger: r, target: t})
		}
		for _, plugin := range seen.plugins {
			if plugin.Triggered(gvk) {
				p.steps = append(p.steps, step{trigger: r, plugin: plugin})
			}
		}
	}
	for _, d := range seen.deployments {
		if d.Prepared && d.Approved {
			cluster, namespaced := scope.Split(d.Package)
			d.Package = slices.Concat(cluster, namespaced)
			p.deployments = append(p.deployments, d)
		}
	}
	return p
}

func (p plan) packages() map[tko.DeploymentID]krm.Package {
	m := make(map[tko.DeploymentID]krm.Package, len(p.deployments))
	for _, d := range p.deployments {
		m[d.ID] = d.Package
	}
	return m
}

// conclude says which conditions are to be written, after everything was
// tried: only those that say something new.
func conclude(seen snapshot, p plan, results []result) []conditionOf {
	var all []conditionOf
	status, reason, message := verdict(seen, p, results)
	previous := scheduledOf(seen.site.Stamp)
	settled := previous != nil && previous.ObservedRevision == seen.site.Stamp.Revision
	for _, d := range seen.deployments {
		if !d.Prepared || !d.Approved {
			all = append(all, unscheduled(d, fmt.Sprintf("is not prepared and approved: it was taken from site %q", seen.site.ID))...)
			continue
		}
		if was := scheduledOf(d.Stamp); reason == ReasonFailed && settled && was != nil &&
			was.Status == tko.ConditionTrue && was.ObservedRevision == d.Stamp.Revision {
			continue // it is there as it should be: what fails is something else
		}
		all = append(all, ifNew(tko.KindDeployment, string(d.ID), d.Stamp, status, reason, message)...)
	}
	if len(p.steps) == 0 && len(p.deployments) == 0 && previous == nil {
		return all // nothing was ever asked of the site
	}
	return append(all, ifNew(tko.KindSite, string(seen.site.ID), seen.site.Stamp, status, reason, message)...)
}

// verdict is what is to be said of the site as a whole.
func verdict(seen snapshot, p plan, results []result) (status, reason, message string) {
	if len(p.steps) == 0 {
		if len(p.deployments) == 0 {
			return tko.ConditionTrue, ReasonScheduled, "there is nothing to schedule"
		}
		return tko.ConditionFalse, ReasonNoScheduler, fmt.Sprintf(
			"no resource of the package of site %q triggers a scheduler: add one, such as a git.plugin.nephio.org/v1alpha1 Repository", seen.site.ID)
	}
	for i, r := range results {
		if r.err == nil {
			continue
		}
		reason := ReasonFailed
		if errors.Is(r.err, tko.ErrInvalid) {
			reason = ReasonInvalid
		}
		message := r.err.Error()
		if p.steps[i].target != nil {
			message = fmt.Sprintf("%s: %s", p.steps[i], message)
		}
		if failed := countFailed(results); failed > 1 {
			message += fmt.Sprintf(" (and %d more failed)", failed-1)
		}
		return tko.ConditionFalse, reason, message
	}
	message = "by " + p.steps[0].String()
	if len(p.steps) > 1 {
		message += fmt.Sprintf(" and %d more", len(p.steps)-1)
	}
	return tko.ConditionTrue, ReasonScheduled, message
}

func countFailed(results []result) int {
	n := 0
	for _, r := range results {
		if r.err != nil {
			n++
		}
	}
	return n
}

// unscheduled is the condition of a deployment that was taken away, if it had
// been scheduled.
func unscheduled(d tko.Deployment, message string) []conditionOf {
	was := scheduledOf(d.Stamp)
	if was == nil || was.Reason == ReasonUnscheduled {
		return nil
	}
	return ifNew(tko.KindDeployment, string(d.ID), d.Stamp, tko.ConditionFalse, ReasonUnscheduled, message)
}

func scheduledOf(s tko.Stamp) *tko.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == tko.ConditionScheduled {
			return &s.Conditions[i]
		}
	}
	return nil
}

func ifNew(kind tko.Kind, id string, s tko.Stamp, status, reason, message string) []conditionOf {
	was := scheduledOf(s)
	if was != nil && was.Status == status && was.Reason == reason && was.Message == message && was.ObservedRevision == s.Revision {
		return nil
	}
	return []conditionOf{{kind: kind, id: id, condition: tko.Condition{
		Type: tko.ConditionScheduled, Status: status, Reason: reason, Message: message, ObservedRevision: s.Revision,
	}}}
}
