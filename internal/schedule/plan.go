package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of Scheduled conditions.
const (
	ReasonScheduled   = "Scheduled" // all steps succeeded
	ReasonFailed      = "Failed"    // a step failed; it is tried again
	ReasonInvalid     = "Invalid"   // a step can succeed only after a change of the site's package
	ReasonRunning     = "Running"   // the work of a plugin continues in another system
	ReasonNoScheduler = tko.ReasonNoScheduler
	ReasonUnscheduled = tko.ReasonUnscheduled
)

// reasonLeft is the reason of objects that are orphaned.
const reasonLeft = trigger.ReasonLeft

// A snapshot is an observed site.
type snapshot struct {
	site        tko.Site
	deployments []tko.Deployment // all at the site, with packages
	plugins     []tko.Plugin     // of type schedule
	stop        tko.SiteStop     // what stops hold
}

// holds reports whether a deployment stays as it is at the site, because it is suspended or
// stopped.
func (s snapshot) holds(d tko.Deployment) bool {
	return tko.Suspended(d.Metadata) || slices.Contains(s.stop.Held, d.ID)
}

// why returns the reason of the condition of a deployment that holds reports, and a text for
// users.
func (s snapshot) why(d tko.Deployment) (reason, text string) {
	if slices.Contains(s.stop.Held, d.ID) {
		return tko.ReasonStopped, s.stop.Reason
	}
	return tko.ReasonSuspended, tko.SuspendedText(tko.KindDeployment, string(d.ID))
}

// A plan has the steps of the reconciliation of a site.
type plan struct {
	steps       []step
	deployments []tko.Deployment   // to apply; their packages have only deployable resources, cluster-scoped ones first
	suspended   []tko.Deployment   // or stopped, with such packages, too; they are held
	held        []tko.DeploymentID // suspended, approved and being prepared again, or changed and to be approved again
	keep        bool               // nothing that the store doesn't have is removed
	agent       bool               // the agent of the site applies it, from bundles
}

// A step is a trigger with what it triggers: a built-in target or a plugin.
type step struct {
	trigger krm.Resource
	place   place.Kind // of the target
	target  target
	plugin  tko.Plugin
}

func (s step) String() string {
	if s.target != nil {
		return s.trigger.Identity().String()
	}
	return fmt.Sprintf("plugin %q for %s", s.plugin.ID(), s.trigger.Identity())
}

// kind returns the kind of the step's target, for metrics.
func (s step) kind() string {
	if s.target == nil {
		return "plugin"
	}
	return s.place.Name
}

// reportsHealth reports whether the reports of the step's target have outcomes for
// the condition Healthy.
func (s step) reportsHealth() bool {
	return s.target != nil && s.place.Reports(s.trigger)
}

// A result is the result of a step.
type result struct {
	report report.Report
	err    error
	note   string // description of the run of a plugin, or ""

	contest   contest
	withheld  []tko.DeploymentID         // that have objects in common with others, and are left as they are
	delivered map[tko.DeploymentID]int64 // revisions that a plugin got, if it succeeded
}

// A conditionOf is a condition of a record, to be written.
type conditionOf struct {
	kind      tko.Kind
	id        string
	condition tko.Condition
}

// decide returns the plan for a site: a step for each pair of a trigger and what it
// triggers, in the order of the site's package.
func decide(seen snapshot, targets map[krm.GVK]builtin) plan {
	var p plan
	for _, r := range seen.site.Package {
		gvk := r.GVK()
		if trigger.ByAgent(r) {
			p.agent = true
			continue
		}
		if t, ok := targets[gvk]; ok {
			p.steps = append(p.steps, step{trigger: r, place: t.Kind, target: t.target})
		}
		for _, plugin := range seen.plugins {
			if plugin.Triggered(gvk) {
				p.steps = append(p.steps, step{trigger: r, plugin: plugin})
			}
		}
	}
	for _, d := range seen.deployments {
		suspended := seen.holds(d)
		switch {
		case suspended || d.Prepared && d.Approved:
			d.Package = deployable(d.Package)
			if suspended {
				p.suspended, p.held = append(p.suspended, d), append(append(p.held, d.ID), d.Replaced...)
			} else {
				p.deployments = append(p.deployments, d)
			}
		case d.StaysAtSite():
			p.held = append(append(p.held, d.ID), d.Replaced...) // which stay as long as this one isn't applied
		}
	}
	if len(seen.stop.Held) > 0 { // nothing is removed, either
		p.held = append(p.held, tko.OtherDeployments)
	}
	return p
}

// deployable returns the resources of a package that are for sites, cluster-scoped ones
// first.
func deployable(pkg krm.Package) krm.Package {
	cluster, namespaced := scope.Split(pkg.Deployable())
	return slices.Concat(cluster, namespaced)
}

func (p plan) packages() map[tko.DeploymentID]krm.Package {
	m := make(map[tko.DeploymentID]krm.Package, len(p.deployments))
	for _, d := range p.deployments {
		m[d.ID] = d.Package
	}
	return m
}

// conclude returns the conditions to write after all steps have run: only those
// that have changed. Those of a record are adjacent.
func conclude(seen snapshot, p plan, results []result) []conditionOf {
	var all []conditionOf
	whole := siteOutcome(seen, p, results)
	previous := tko.FindCondition(seen.site.Stamp.Conditions, tko.ConditionScheduled)
	settled := previous != nil && previous.ObservedRevision == seen.site.Stamp.Revision
	all = append(all, suspensions(seen)...)
	if p.isDelivered() {
		return append(all, byAgent(seen)...)
	}
	for _, d := range seen.deployments {
		if seen.holds(d) {
			continue
		}
		if !d.Prepared || !d.Approved {
			if !isKept(results, d.ID) {
				all = append(all, unscheduled(d, fmt.Sprintf("is not prepared and approved: it was taken from site %q", seen.site.ID))...)
			}
			continue
		}
		v, own := deploymentOutcome(d, whole, p, results)
		was := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
		// A failure of another deployment doesn't change that this one is scheduled.
		trouble := v.Reason == ReasonFailed || v.Reason == ReasonRunning || v.Reason == trigger.ReasonWaiting || v.Reason == tko.ReasonSuspended || v.Reason == tko.ReasonStopped
		if own || !trouble || !settled || was == nil || was.Status != tko.ConditionTrue || was.ObservedRevision != d.Stamp.Revision {
			all = append(all, deploymentCondition(d, tko.ConditionScheduled, v, receiptsOf(results, d.ID)...)...)
		}
		if v.Status == tko.ConditionTrue && attested(tko.ConditionScheduled, d.Stamp.Revision, receiptsOf(results, d.ID)) {
			all = append(all, deploymentCondition(d, tko.ConditionDelivered, p.delivery(d))...)
		}
		h, receipts := healthOf(p, results, func(r report.Report) (report.State, report.Receipt) { return r.Deployments[d.ID], r.Receipts[d.ID] })
		if h.Status == "" {
			h = unobserved(seen.site.ID, d.Stamp, p, results)
		}
		all = append(all, deploymentCondition(d, tko.ConditionHealthy, h, receipts...)...)
	}
	if len(p.steps) == 0 && len(p.deployments) == 0 && previous == nil {
		return all // the site never had anything to schedule
	}
	all = append(all, siteCondition(seen.site, tko.ConditionScheduled, whole, siteReceipts(results)...)...)
	h, receipts := healthOf(p, results, func(r report.Report) (report.State, report.Receipt) { return r.Site, r.SiteReceipt })
	if h.Status == "" {
		h = unobserved(seen.site.ID, seen.site.Stamp, p, results)
	}
	if held := withheld(results); len(held) > 0 && h.Status == tko.ConditionTrue {
		h = report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonNotAsked, Message: fmt.Sprintf("%d deployments are left as they are, and were not asked for their health, such as %q", len(held), held[0])}
	}
	all = append(all, siteCondition(seen.site, tko.ConditionHealthy, h, receipts...)...)
	return append(p.withoutAgent(all), removalsApproved(seen.site, results)...)
}

// removalsApproved returns the condition that reports removals which wait for an approval,
// whatever else the site reports; none if none ever did.
func removalsApproved(site tko.Site, results []result) []conditionOf {
	var v report.Outcome
	for _, r := range results {
		if one := r.report.Removals; one.Status != "" && v.Status != tko.ConditionFalse {
			v = one
		}
	}
	if v.Status != tko.ConditionFalse && !tko.HasCondition(site.Stamp.Conditions, tko.ConditionRemovalsApproved) {
		return nil
	}
	return siteCondition(site, tko.ConditionRemovalsApproved, v)
}

func isKept(results []result, id tko.DeploymentID) bool {
	return slices.ContainsFunc(results, func(r result) bool {
		return slices.Contains(r.report.Kept, id) || slices.Contains(r.report.Kept, tko.OtherDeployments)
	})
}

// withheld returns the deployments that a step left as they are, each once.
func withheld(results []result) []tko.DeploymentID {
	var all []tko.DeploymentID
	for _, r := range results {
		all = append(all, r.withheld...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// receiptsOf returns the receipts of a deployment: one of each step.
func receiptsOf(results []result, id tko.DeploymentID) []report.Receipt {
	all := make([]report.Receipt, len(results))
	for i, r := range results {
		all[i] = r.report.Receipts[id]
	}
	return all
}

func siteReceipts(results []result) []report.Receipt {
	all := make([]report.Receipt, len(results))
	for i, r := range results {
		all[i] = r.report.SiteReceipt
	}
	return all
}

// deploymentOutcome returns the Scheduled outcome of a deployment: the first failure
// that a step reports for it, and then own is true; or else the failure of the first step
// that failed as a whole and says nothing of it. It is a success, and own, only if all steps
// report one.
func deploymentOutcome(d tko.Deployment, whole report.Outcome, p plan, results []result) (v report.Outcome, own bool) {
	if len(results) == 0 {
		return whole, false
	}
	var failed report.Outcome
	for i, r := range results {
		outcome := r.report.Deployments[d.ID].Scheduled
		switch {
		case outcome.Status == "":
			outcome = stepOutcome(p, results, i)
			if outcome.Status == "" || outcome.Status == tko.ConditionTrue {
				outcome = notAsked(d.Stamp.Revision)
			}
			if failed.Status == "" {
				failed = outcome
			}
		case outcome.Status != tko.ConditionTrue:
			return outcome, true
		default:
			v = outcome
		}
	}
	switch {
	case failed.Status != "":
		return failed, false
	case v.Reason == ReasonScheduled && whole.Status == tko.ConditionTrue:
		return whole, true // with the notes of plugins
	}
	return v, true
}

// healthOf returns the worst health that targets report, with the receipts of those that
// can. The outcome is empty if one of them reports nothing now, and unknown if none of the
// site's targets ever can.
func healthOf(p plan, results []result, of func(report.Report) (report.State, report.Receipt)) (worst report.Outcome, receipts []report.Receipt) {
	rank := map[string]int{tko.ConditionTrue: 1, tko.ConditionUnknown: 2, tko.ConditionFalse: 3}
	silent := false
	for i, r := range results {
		if !p.steps[i].reportsHealth() {
			continue
		}
		state, receipt := of(r.report)
		receipts, silent = append(receipts, receipt), silent || state.Healthy.Status == ""
		if rank[state.Healthy.Status] > rank[worst.Status] {
			worst = state.Healthy
		}
	}
	if silent && worst.Status == tko.ConditionTrue {
		return report.Outcome{}, nil
	}
	return worst, receipts
}

// unobserved returns the health of a record for which no target of a site reports now:
// unknown. The outcome is empty if a target that may report it never did, or failed
// temporarily.
func unobserved(site tko.SiteID, s tko.Stamp, p plan, results []result) report.Outcome {
	if len(p.steps) > 0 && !slices.ContainsFunc(p.steps, step.reportsHealth) {
		return healthNotReported(site, p)
	}
	was := tko.FindCondition(s.Conditions, tko.ConditionHealthy)
	if was == nil || !slices.Contains([]string{trigger.ReasonHealthy, trigger.ReasonInProgress, trigger.ReasonUnhealthy}, was.Reason) {
		return report.Outcome{}
	}
	for i, r := range results {
		if r.err != nil && !errors.Is(r.err, tko.ErrInvalid) && p.steps[i].reportsHealth() {
			return report.Outcome{}
		}
	}
	return report.Outcome{Status: tko.ConditionUnknown, Reason: trigger.ReasonUnknown, Message: fmt.Sprintf(
		"no target of site %q reports the health any more: the conditions %s, and the site's %s, state why", site, tko.ConditionScheduled, tko.ConditionCleanedUp)}
}

// siteOutcome returns the Scheduled outcome of the site: the first failure of a
// step, or a success that names the first step.
func siteOutcome(seen snapshot, p plan, results []result) report.Outcome {
	if len(p.steps) == 0 {
		if len(p.deployments) == 0 {
			return report.Outcome{Status: tko.ConditionTrue, Reason: report.ReasonNothing, Message: "there is nothing to schedule"}
		}
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonNoScheduler, Message: fmt.Sprintf(
			"no resource of the package of site %q triggers a scheduler: add one, such as a git.plugin.nephio.org/v1alpha1 Repository", seen.site.ID)}
	}
	for i := range results {
		if outcome := stepOutcome(p, results, i); outcome.Status != "" {
			return outcome
		}
	}
	message := "by " + p.steps[0].String()
	if results[0].note != "" {
		message += ": " + results[0].note
	}
	if p.keep {
		message += "; the store was restored from a backup: what it doesn't have stays until the site is released with --remove (tko hold release)"
	}
	if len(p.steps) > 1 {
		message += fmt.Sprintf(" and %d more", len(p.steps)-1)
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: message}
}

// stepOutcome returns the failure of a step for the whole site; empty if it succeeded.
func stepOutcome(p plan, results []result, i int) report.Outcome {
	r := results[i]
	outcome := r.report.Site.Scheduled
	if r.err == nil && (outcome.Status == "" || outcome.Status == tko.ConditionTrue) {
		return report.Outcome{}
	}
	if outcome.Status == "" {
		outcome = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: r.err.Error()}
		if errors.Is(r.err, tko.ErrInvalid) {
			outcome.Reason = ReasonInvalid
		}
	}
	if p.steps[i].target != nil {
		outcome.Message = printable.Prefixed(p.steps[i].String(), outcome.Message)
	}
	if failed := countFailed(results); failed > 1 {
		outcome.Message += fmt.Sprintf(" (and %d more failed)", failed-1)
	}
	return outcome
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

// unscheduled returns the conditions of a deployment that was removed from a site;
// none if it was not scheduled.
func unscheduled(d tko.Deployment, message string) []conditionOf {
	was := tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled)
	if was == nil || was.Reason == ReasonUnscheduled {
		return nil
	}
	all := deploymentCondition(d, tko.ConditionScheduled, report.Outcome{Status: tko.ConditionFalse, Reason: ReasonUnscheduled, Message: message})
	if tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy) != nil {
		all = append(all, deploymentCondition(d, tko.ConditionHealthy, report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnscheduled, Message: message})...)
	}
	if tko.FindCondition(d.Stamp.Conditions, tko.ConditionDelivered) != nil {
		all = append(all, deploymentCondition(d, tko.ConditionDelivered, report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnscheduled, Message: message})...)
	}
	return all
}

// siteCondition returns the condition of an outcome of a site, unless the site has it.
func siteCondition(site tko.Site, name string, v report.Outcome, receipts ...report.Receipt) []conditionOf {
	return entity{tko.KindSite, string(site.ID), site.Stamp}.ifNew(name, v, receipts...)
}

// deploymentCondition returns the condition of an outcome of a deployment, unless the deployment
// has it.
func deploymentCondition(d tko.Deployment, name string, v report.Outcome, receipts ...report.Receipt) []conditionOf {
	return entity{tko.KindDeployment, string(d.ID), d.Stamp}.ifNew(name, v, receipts...)
}

// An entity is what has a condition.
type entity struct {
	kind  tko.Kind
	id    string
	stamp tko.Stamp
}

// ifNew returns the condition of an outcome, unless the outcome is empty or the
// entity has that condition. A former note doesn't count as a difference. All conditions
// that the meta-scheduler writes are made here: see certified.
func (e entity) ifNew(name string, v report.Outcome, receipts ...report.Receipt) []conditionOf {
	s := e.stamp
	if v.Status == "" {
		return nil
	}
	v = certified(name, v, s.Revision, receipts)
	was := tko.FindCondition(s.Conditions, name)
	message := v.Message
	if v.Note != "" {
		message += "; " + v.Note
	}
	if was != nil && was.Status == v.Status && was.Reason == v.Reason && was.ObservedRevision == s.Revision {
		if was.Message == message || v.Note == "" && v.Status == tko.ConditionTrue && strings.HasPrefix(was.Message, v.Message+"; ") {
			return nil
		}
	}
	return []conditionOf{{kind: e.kind, id: e.id, condition: tko.Condition{
		Type: name, Status: v.Status, Reason: v.Reason, Message: message, ObservedRevision: s.Revision,
	}}}
}
