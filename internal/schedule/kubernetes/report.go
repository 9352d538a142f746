package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

const (
	fewObjects     = 3
	fewDeployments = 2
)

// report returns the report on a complete reconciliation.
func (rc *reconciliation) report() (r report.Report, err error) {
	r = report.Report{
		Removed: rc.removed, Kept: rc.held, Deployments: map[tko.DeploymentID]report.State{},
		Requeue: jittered(rc.target.options.Interval),
	}
	var failed, unhealthy, drifted, overdue []string
	worst := healthy
	waits, invalid := false, true
	for _, d := range rc.deployments {
		state, h := rc.deploymentState(d.ID)
		r.Deployments[d.ID] = state
		r.Attest(d.ID, d.Stamp.Revision)
		switch state.Scheduled.Reason {
		case trigger.ReasonFailed, trigger.ReasonInvalid:
			failed = append(failed, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
			invalid = invalid && state.Scheduled.Reason == trigger.ReasonInvalid
		case trigger.ReasonWaiting, trigger.ReasonReplacing:
			waits = true
		case trigger.ReasonOverdue:
			overdue = append(overdue, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
		case trigger.ReasonDrifted:
			drifted = append(drifted, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
		}
		rc.changing = rc.changing || h == inProgress
		if h != healthy {
			worst = max(worst, h)
			unhealthy = append(unhealthy, fmt.Sprintf("deployment %q: %s", d.ID, state.Healthy.Message))
		}
	}
	r.Site.Healthy = healthOutcome(worst, unhealthy, fewDeployments, fmt.Sprintf("all %d deployments are healthy", len(rc.deployments)))
	if rc.changing || waits || len(rc.removing) > 0 {
		r.Requeue = rc.target.retryAfter(rc.site)
	}
	if next := rc.nextOverdue(); next > 0 {
		r.Requeue = min(r.Requeue, next)
	}
	if len(rc.replaces.clearing) > 0 { // a service is interrupted
		r.Requeue = soon
	}
	r.Removals = rc.removals()
	defer func() {
		if err == nil {
			r.AttestSite(rc.site.Stamp.Revision)
		}
	}()
	switch {
	case len(failed) > 0:
		reason, kind := trigger.ReasonFailed, error(nil)
		if invalid {
			reason, kind = trigger.ReasonInvalid, tko.ErrInvalid
		}
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: reason, Message: firstFew(failed, fewDeployments)}
		if kind != nil {
			return r, tko.Errorf(kind, "%s", r.Site.Scheduled.Message)
		}
		r.Requeue = 0 // retry with the back-off of failures
		return r, errors.New(r.Site.Scheduled.Message)
	case rc.pruning.approval != "":
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonApproval, Message: rc.approvalMessage()}
	case len(rc.removing) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonRemoving, Message: firstFew(rc.removing, fewObjects)}
	case len(overdue) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonOverdue, Message: firstFew(overdue, fewDeployments)}
	case waits:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonWaiting, Message: "some deployments wait for other objects to be ready or removed"}
	case len(drifted) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonDrifted, Message: firstFew(drifted, fewDeployments)}
	}
	return r, nil
}

// removals returns the outcome of removals that are beyond the budget, whatever else fails
// at the site.
func (rc *reconciliation) removals() report.Outcome {
	if rc.pruning.approval != "" {
		return report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonApproval, Message: rc.approvalMessage()}
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonNoApproval, Message: "no removals wait for an approval"}
}

// approvalMessage describes the removals beyond the budget, and how to approve them.
func (rc *reconciliation) approvalMessage() string {
	names := make([]string, 0, len(rc.pruning.waiting))
	for _, r := range rc.pruning.waiting {
		names = append(names, r.String())
	}
	more := rc.pruning.foreign
	if !rc.pruning.over {
		return rc.approvalText(firstFew(names, fewObjects) + " would be removed")
	}
	return rc.approvalText(fmt.Sprintf("%d of %d objects would be removed, which is %s: %s",
		len(names)+len(more.objects), rc.budgetBase+len(more.objects), rc.spec.Budget.Text("objects"), firstFew(names, fewObjects)))
}

// approvalText completes a text about removals that wait for an approval.
func (rc *reconciliation) approvalText(text string) string {
	more := rc.pruning.foreign
	if len(more.objects) > 0 {
		text += fmt.Sprintf("; %d objects in their namespaces, which TKO did not make, would be deleted too: %s", len(more.objects), firstFew(more.objects, fewObjects))
	}
	if len(more.unknown) > 0 {
		text += "; other objects in their namespaces are not known, because TKO can't list " + firstFew(more.unknown, fewObjects)
	}
	return fmt.Sprintf("%s. To approve, set spec.prune.approve: %q in the Cluster resource", text, rc.pruning.approval)
}

// deploymentState returns the state and the health of a deployment.
func (rc *reconciliation) deploymentState(id tko.DeploymentID) (report.State, health) {
	problems := slices.Clone(rc.wanted.problems[id])
	var sick, drifted, corrected, waiting []string
	worst := healthy
	for _, k := range rc.wanted.of[id] {
		s := rc.states[k]
		if s.problem != nil {
			problems = append(problems, s.problem)
		}
		if s.drift != "" {
			drifted = append(drifted, fmt.Sprintf("%s %s", k, s.drift))
		}
		if s.waits != "" {
			waiting = append(waiting, fmt.Sprintf("%s %s", k, s.waits))
		}
		if s.corrected != "" && s.problem == nil {
			corrected = append(corrected, fmt.Sprintf("%s %s", k, s.corrected))
		}
		var h health
		var why string
		switch {
		case s.completed():
			h = healthy
		case s.live != nil:
			h, why = rc.health.healthOf(s.live)
		case rc.unreadable[k] != "":
			h, why = failing, rc.unreadable[k]
		case rc.blocked[id] != "", rc.replaces.clearing[id] != "", s.pending():
			h, why = inProgress, "does not exist yet"
		default:
			h, why = failing, "is missing"
		}
		if untested, failed := rc.untested(k); h == healthy && untested != "" {
			h, why = inProgress, untested
			if failed {
				h = failing
			}
		}
		rc.changing = rc.changing || h == inProgress
		if h != healthy {
			worst = max(worst, h)
			sick = append(sick, fmt.Sprintf("%s %s", k, why))
		}
	}
	var state report.State
	objects, charts := rc.countObjects(id)
	switch {
	case len(problems) > 0:
		worst = max(worst, failing)
		state.Scheduled = failure(problems)
		if len(sick) == 0 {
			sick = append(sick, "not all objects exist")
		}
	case rc.blocked[id] != "":
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonWaiting, Message: rc.blocked[id]}
	case len(waiting) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonWaiting, Message: firstFew(waiting, fewObjects)}
	case rc.isReplacing(id):
		state.Scheduled = rc.replacing(id)
	case len(drifted) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonDrifted, Message: firstFew(drifted, fewObjects)}
	case len(rc.wanted.of[id]) == 0:
		state.Scheduled = report.Nothing()
	default:
		state.Scheduled = report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonApplied, Message: fmt.Sprintf("%d objects%s are as they should be", objects, charts)}
		if len(corrected) > 0 {
			state.Scheduled.Note = fmt.Sprintf("corrected at %s: %s", time.Now().UTC().Format(time.RFC3339), firstFew(corrected, fewObjects))
		}
	}
	state.Healthy = healthOutcome(worst, sick, fewObjects, fmt.Sprintf("%d objects are healthy", objects))
	return state, worst
}

func failure(problems []*problem) report.Outcome {
	lines := make([]string, len(problems))
	invalid := true
	for i, p := range problems {
		lines[i] = fmt.Sprintf("%s %s", p.object, p.message)
		invalid = invalid && p.invalid
	}
	v := report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonFailed, Message: firstFew(lines, fewObjects)}
	if invalid {
		v.Reason = trigger.ReasonInvalid
	}
	return v
}

func healthOutcome(worst health, lines []string, few int, good string) report.Outcome {
	switch worst {
	case inProgress:
		return report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonInProgress, Message: firstFew(lines, few)}
	case failing:
		return report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonUnhealthy, Message: firstFew(lines, few)}
	case healthy:
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonHealthy, Message: good}
}
