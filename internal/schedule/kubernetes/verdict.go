package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
)

const (
	fewObjects     = 3
	fewDeployments = 2
)

// report says what came of a look that came to its end.
func (l *look) report() (report.Report, error) {
	r := report.Report{
		Removed: l.removed, Kept: l.held, Deployments: map[tko.DeploymentID]report.State{},
		Requeue: jittered(l.target.options.Interval),
	}
	var failed, unhealthy, drifted []string
	worst := healthy
	waits, invalid := false, true
	for _, d := range l.deployments {
		state, h := l.deployment(d.ID)
		r.Deployments[d.ID] = state
		switch state.Scheduled.Reason {
		case ReasonFailed, ReasonInvalid:
			failed = append(failed, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
			invalid = invalid && state.Scheduled.Reason == ReasonInvalid
		case ReasonWaiting:
			waits = true
		case ReasonDrifted:
			drifted = append(drifted, fmt.Sprintf("deployment %q: %s", d.ID, state.Scheduled.Message))
		}
		l.moving = l.moving || h == inProgress
		if h != healthy {
			worst = max(worst, h)
			unhealthy = append(unhealthy, fmt.Sprintf("deployment %q: %s", d.ID, state.Healthy.Message))
		}
	}
	r.Site.Healthy = verdictOf(worst, unhealthy, fewDeployments, fmt.Sprintf("all %d deployments are healthy", len(l.deployments)))
	if l.moving || waits || len(l.leaving) > 0 {
		r.Requeue = l.target.again(l.site)
	}
	switch {
	case len(failed) > 0:
		reason, kind := ReasonFailed, error(nil)
		if invalid {
			reason, kind = ReasonInvalid, tko.ErrInvalid
		}
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: reason, Message: firstFew(failed, fewDeployments)}
		if kind != nil {
			return r, tko.Errorf(kind, "%s", r.Site.Scheduled.Message)
		}
		r.Requeue = 0 // with the back-off of what failed
		return r, errors.New(r.Site.Scheduled.Message)
	case l.pruning.ask != "":
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonApproval, Message: l.question()}
	case len(l.leaving) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonRemoving, Message: firstFew(l.leaving, fewObjects)}
	case waits:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: "some deployments wait for what comes first, or has to go first"}
	case len(drifted) > 0:
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonDrifted, Message: firstFew(drifted, fewDeployments)}
	}
	return r, nil
}

// question asks whether what is beyond the budget may be removed.
func (l *look) question() string {
	names := make([]string, 0, len(l.pruning.remove))
	for _, r := range l.pruning.remove {
		names = append(names, r.String())
	}
	more := l.pruning.foreign
	text := fmt.Sprintf("%d of %d objects would be removed, which is more than the budget allows (%d %%, %d objects): %s",
		len(names)+len(more.objects), l.had+len(more.objects), l.spec.Budget.Percent, l.spec.Budget.Objects, firstFew(names, fewObjects))
	if len(more.objects) > 0 {
		text += fmt.Sprintf("; with their namespaces would go %d that TKO did not make: %s", len(more.objects), firstFew(more.objects, fewObjects))
	}
	if len(more.unknown) > 0 {
		text += "; what else would go with their namespaces is not known, for TKO can't list " + firstFew(more.unknown, fewObjects)
	}
	return fmt.Sprintf("%s. To agree, set spec.prune.approve: %q in the Cluster resource", text, l.pruning.ask)
}

// deployment says how a deployment is.
func (l *look) deployment(id tko.DeploymentID) (report.State, health) {
	problems := slices.Clone(l.wanted.problems[id])
	var sick, drifted, corrected, waiting []string
	worst := healthy
	for _, k := range l.wanted.of[id] {
		s := l.states[k]
		if s.problem != nil {
			problems = append(problems, *s.problem)
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
		case s.over():
			h = healthy
		case s.live != nil:
			h, why = healthOf(s.live)
		case l.unseen[k] != "":
			h, why = failing, l.unseen[k]
		case l.blocked[id] != "", s.pending():
			h, why = inProgress, "is not there yet"
		default:
			h, why = failing, "is missing"
		}
		l.moving = l.moving || h == inProgress
		if h != healthy {
			worst = max(worst, h)
			sick = append(sick, fmt.Sprintf("%s %s", k, why))
		}
	}
	var state report.State
	objects, charts := l.count(id)
	switch {
	case len(problems) > 0:
		worst = max(worst, failing)
		state.Scheduled = failure(problems)
		if len(sick) == 0 {
			sick = append(sick, "not all objects are there")
		}
	case l.blocked[id] != "":
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: l.blocked[id]}
	case len(waiting) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: firstFew(waiting, fewObjects)}
	case len(drifted) > 0:
		state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonDrifted, Message: firstFew(drifted, fewObjects)}
	case len(l.wanted.of[id]) == 0:
		state.Scheduled = report.Nothing()
	default:
		state.Scheduled = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonApplied, Message: fmt.Sprintf("%d objects%s are as they should be", objects, charts)}
		if len(corrected) > 0 {
			state.Scheduled.Note = fmt.Sprintf("corrected at %s: %s", time.Now().UTC().Format(time.RFC3339), firstFew(corrected, fewObjects))
		}
	}
	state.Healthy = verdictOf(worst, sick, fewObjects, fmt.Sprintf("%d objects are healthy", objects))
	return state, worst
}

func failure(problems []problem) report.Outcome {
	lines := make([]string, len(problems))
	invalid := true
	for i, p := range problems {
		lines[i] = fmt.Sprintf("%s %s", p.object, p.message)
		invalid = invalid && p.invalid
	}
	v := report.Outcome{Status: tko.ConditionFalse, Reason: ReasonFailed, Message: firstFew(lines, fewObjects)}
	if invalid {
		v.Reason = ReasonInvalid
	}
	return v
}

func verdictOf(worst health, lines []string, few int, good string) report.Outcome {
	switch worst {
	case inProgress:
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonInProgress, Message: firstFew(lines, few)}
	case failing:
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonUnhealthy, Message: firstFew(lines, few)}
	case healthy:
	}
	return report.Outcome{Status: tko.ConditionTrue, Reason: ReasonHealthy, Message: good}
}
