package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of Scheduled conditions.
const (
	ReasonScheduled   = "Scheduled"   // all that the site triggers was given the deployments
	ReasonFailed      = "Failed"      // something was not; it is tried again
	ReasonInvalid     = "Invalid"     // something can't be; a change of the site's package helps
	ReasonNoScheduler = "NoScheduler" // no resource of the site's package triggers anything
	ReasonUnscheduled = tko.ReasonUnscheduled
)

// reasonLeft is of what stays where it was, for ever.
const reasonLeft = kubernetes.ReasonLeft

// snapshot is a site as it was observed.
type snapshot struct {
	site        tko.Site
	deployments []tko.Deployment // all at the site, with packages
	plugins     []tko.Plugin     // of type schedule
}

// plan is what is to be done for a site.
type plan struct {
	steps       []step
	deployments []tko.Deployment   // that are to be there, of each what may leave, cluster-scoped resources first
	held        []tko.DeploymentID // approved, and being prepared again, or changed and to be approved again
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

// reportsHealth says whether the reports of a step's target have conditions
// Healthy.
func (s step) reportsHealth() bool {
	_, commits := s.target.(gitTarget)
	return s.target != nil && !commits
}

// result is what came of a step.
type result struct {
	report report.Report
	err    error
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
			cluster, namespaced := scope.Split(d.Package.Deployable())
			d.Package = slices.Concat(cluster, namespaced)
			p.deployments = append(p.deployments, d)
		} else if d.Approved || isWithdrawn(d) {
			p.held = append(p.held, d.ID)
		}
	}
	return p
}

// isWithdrawn says whether a deployment was approved, and has changed since.
func isWithdrawn(d tko.Deployment) bool {
	c := conditionIn(d.Stamp, tko.ConditionApproved)
	return !d.Approved && c != nil && c.Reason == tko.ReasonApprovalWithdrawn
}

func (p plan) packages() map[tko.DeploymentID]krm.Package {
	m := make(map[tko.DeploymentID]krm.Package, len(p.deployments))
	for _, d := range p.deployments {
		m[d.ID] = d.Package
	}
	return m
}

// conclude says which conditions are to be written, after everything was
// tried: only those that say something new. Those of a record follow each other.
func conclude(seen snapshot, p plan, results []result) []conditionOf {
	var all []conditionOf
	whole := verdict(seen, p, results)
	previous := scheduledOf(seen.site.Stamp)
	settled := previous != nil && previous.ObservedRevision == seen.site.Stamp.Revision
	for _, d := range seen.deployments {
		if !d.Prepared || !d.Approved {
			if !isKept(results, d.ID) {
				all = append(all, unscheduled(d, fmt.Sprintf("is not prepared and approved: it was taken from site %q", seen.site.ID))...)
			}
			continue
		}
		v, own := verdictOn(d.ID, whole, results)
		was := scheduledOf(d.Stamp)
		// It may be there as it should be, and what fails is something else.
		trouble := whole.Reason == ReasonFailed || whole.Reason == kubernetes.ReasonWaiting
		if own || !trouble || !settled || was == nil || was.Status != tko.ConditionTrue || was.ObservedRevision != d.Stamp.Revision {
			all = append(all, ifNew(tko.KindDeployment, string(d.ID), d.Stamp, tko.ConditionScheduled, v)...)
		}
		h := healthOf(results, func(r report.Report) report.State { return r.Deployments[d.ID] })
		if h.Status == "" {
			h = unobserved(seen.site.ID, d.Stamp, p, results)
		}
		all = append(all, ifNew(tko.KindDeployment, string(d.ID), d.Stamp, tko.ConditionHealthy, h)...)
	}
	if len(p.steps) == 0 && len(p.deployments) == 0 && previous == nil {
		return all // nothing was ever asked of the site
	}
	all = append(all, ifNew(tko.KindSite, string(seen.site.ID), seen.site.Stamp, tko.ConditionScheduled, whole)...)
	h := healthOf(results, func(r report.Report) report.State { return r.Site })
	if h.Status == "" {
		h = unobserved(seen.site.ID, seen.site.Stamp, p, results)
	}
	return append(all, ifNew(tko.KindSite, string(seen.site.ID), seen.site.Stamp, tko.ConditionHealthy, h)...)
}

func isKept(results []result, id tko.DeploymentID) bool {
	return slices.ContainsFunc(results, func(r result) bool { return slices.Contains(r.report.Kept, id) })
}

// verdictOn is what is to be said of a deployment: what a target says of it
// itself, the first that isn't content before the others.
func verdictOn(id tko.DeploymentID, whole report.Outcome, results []result) (v report.Outcome, own bool) {
	v = whole
	all := len(results) > 0
	for _, r := range results {
		said := r.report.Deployments[id].Scheduled
		switch {
		case said.Status == "":
			all = false
		case said.Status != tko.ConditionTrue:
			return said, true
		default:
			v = said
		}
	}
	if all {
		return v, true
	}
	return whole, false
}

// healthOf is the worst that targets say: nothing if none says anything.
func healthOf(results []result, of func(report.Report) report.State) report.Outcome {
	var worst report.Outcome
	rank := map[string]int{tko.ConditionTrue: 1, tko.ConditionUnknown: 2, tko.ConditionFalse: 3}
	for _, r := range results {
		if v := of(r.report).Healthy; rank[v.Status] > rank[worst.Status] {
			worst = v
		}
	}
	return worst
}

// unobserved is the health of a record on which no target of a site reports,
// though one did before: unknown. It is empty if no target ever reported on it,
// and if a target that may report on it failed for now.
func unobserved(site tko.SiteID, s tko.Stamp, p plan, results []result) report.Outcome {
	was := conditionIn(s, tko.ConditionHealthy)
	if was == nil || !slices.Contains([]string{kubernetes.ReasonHealthy, kubernetes.ReasonInProgress, kubernetes.ReasonUnhealthy}, was.Reason) {
		return report.Outcome{}
	}
	for i, r := range results {
		if r.err != nil && !errors.Is(r.err, tko.ErrInvalid) && p.steps[i].reportsHealth() {
			return report.Outcome{}
		}
	}
	return report.Outcome{Status: tko.ConditionUnknown, Reason: kubernetes.ReasonUnknown, Message: fmt.Sprintf(
		"no target of site %q reports the health any more: the conditions %s, and the site's %s, tell why", site, tko.ConditionScheduled, tko.ConditionCleanedUp)}
}

// verdict is what is to be said of the site as a whole.
func verdict(seen snapshot, p plan, results []result) report.Outcome {
	if len(p.steps) == 0 {
		if len(p.deployments) == 0 {
			return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: "there is nothing to schedule"}
		}
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonNoScheduler, Message: fmt.Sprintf(
			"no resource of the package of site %q triggers a scheduler: add one, such as a git.plugin.nephio.org/v1alpha1 Repository", seen.site.ID)}
	}
	for i, r := range results {
		said := r.report.Site.Scheduled
		if r.err == nil && (said.Status == "" || said.Status == tko.ConditionTrue) {
			continue
		}
		if said.Status == "" {
			said = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: r.err.Error()}
			if errors.Is(r.err, tko.ErrInvalid) {
				said.Reason = ReasonInvalid
			}
		}
		if p.steps[i].target != nil {
			said.Message = fmt.Sprintf("%s: %s", p.steps[i], said.Message)
		}
		if failed := countFailed(results); failed > 1 {
			said.Message += fmt.Sprintf(" (and %d more failed)", failed-1)
		}
		return said
	}
	message := "by " + p.steps[0].String()
	if len(p.steps) > 1 {
		message += fmt.Sprintf(" and %d more", len(p.steps)-1)
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: message}
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

// unscheduled are the conditions of a deployment that was taken away, if it had
// been scheduled.
func unscheduled(d tko.Deployment, message string) []conditionOf {
	was := scheduledOf(d.Stamp)
	if was == nil || was.Reason == ReasonUnscheduled {
		return nil
	}
	id := string(d.ID)
	all := ifNew(tko.KindDeployment, id, d.Stamp, tko.ConditionScheduled, report.Outcome{Status: tko.ConditionFalse, Reason: ReasonUnscheduled, Message: message})
	if conditionIn(d.Stamp, tko.ConditionHealthy) != nil {
		all = append(all, ifNew(tko.KindDeployment, id, d.Stamp, tko.ConditionHealthy, report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnscheduled, Message: message})...)
	}
	return all
}

func scheduledOf(s tko.Stamp) *tko.Condition { return conditionIn(s, tko.ConditionScheduled) }

func conditionIn(s tko.Stamp, name string) *tko.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			return &s.Conditions[i]
		}
	}
	return nil
}

// ifNew is a condition, if it says something, and something new. A note that
// was there stays as long as the rest does.
func ifNew(kind tko.Kind, id string, s tko.Stamp, name string, v report.Outcome) []conditionOf {
	if v.Status == "" {
		return nil
	}
	was := conditionIn(s, name)
	message := v.Message
	if v.Note != "" {
		message += "; " + v.Note
	}
	if was != nil && was.Status == v.Status && was.Reason == v.Reason && was.ObservedRevision == s.Revision {
		if was.Message == message || v.Note == "" && v.Status == tko.ConditionTrue && strings.HasPrefix(was.Message, v.Message+"; ") {
			return nil
		}
	}
	return []conditionOf{{kind: kind, id: id, condition: tko.Condition{
		Type: name, Status: v.Status, Reason: v.Reason, Message: message, ObservedRevision: s.Revision,
	}}}
}
