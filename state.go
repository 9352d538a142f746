package tko

import (
	"slices"
	"time"
)

// A State is the summary of an entity's flags and conditions for people.
// Dashboards group, count and color by it.
type State string

// The states of entities.
const (
	StateFailing State = "failing" // an operator must act
	StateWaiting State = "waiting" // for an approval, or for another entity
	StateWorking State = "working" // TKO is preparing or scheduling it
	StateHealthy State = "healthy" // everything that is known about it is as wanted
	StateUnknown State = "unknown" // nothing was reported yet, or it can't be observed now
)

// States returns all states, the most urgent first.
func States() []State {
	return []State{StateFailing, StateWaiting, StateWorking, StateUnknown, StateHealthy}
}

// A Summary is the state of an entity with the condition that decided it.
type Summary struct {
	State     State
	Condition string // type of the condition; "" if none decided
	Reason    string
	Message   string
	Since     time.Time // when the condition got its status; zero if none decided
}

// Reasons of conditions that aren't True, and still no failure.
var (
	reasonsToWait = []string{"Waiting", ReasonChangeProposed, ReasonApprovalWithdrawn, "NotApproved", "Postponed", ReasonFrozen, ReasonSuspended, ReasonApart, ReasonWaitsForSharers, ReasonDeliveredPartly, ReasonPullSuspended, ReasonWaitsForReferences}
	reasonsOfWork = []string{"InProgress", "Running", "Removing", "NotPrepared", "NotEvaluatedYet", "New", ReasonNotYetApplied, ReasonSuperseded, ReasonConsented}
)

// Summary returns the state of a deployment: its most urgent condition decides.
func (d Deployment) Summary() Summary {
	conditions := d.Stamp.Conditions
	worst := summarize(conditions)
	switch {
	case worst.State == StateFailing:
		return worst
	case !d.Prepared:
		return flagSummary(conditions, ConditionPrepared, Summary{State: StateWorking, Reason: "NotPrepared", Message: "it is not prepared yet"})
	case !d.Approved:
		return flagSummary(conditions, ConditionApproved, Summary{State: StateWaiting, Reason: "NotApproved", Message: "it waits for an approval"})
	case worst.State != "" && worst.State != StateHealthy:
		return worst
	case d.Site == "":
		return Summary{State: StateHealthy}
	case !HasCondition(conditions, ConditionScheduled):
		return Summary{State: StateWorking, Reason: "NotScheduled", Message: "it is not yet scheduled to its site"}
	}
	return outdated(unreported(Summary{State: StateHealthy}, conditions), d.Stamp)
}

// Summary returns the state of a site: unknown until it has conditions.
func (s Site) Summary() Summary {
	if worst := summarize(s.Stamp.Conditions); worst.State != "" {
		return unreported(worst, s.Stamp.Conditions)
	}
	return Summary{State: StateUnknown, Reason: "NotScheduled", Message: "nothing was scheduled to it yet"}
}

// Summary returns the state of a plugin.
func (p Plugin) Summary() Summary {
	if worst := summarize(p.Stamp.Conditions); worst.State != "" {
		return worst
	}
	return Summary{State: StateHealthy}
}

// Summary returns the state of a rollout. Its reason is the rollout's own state.
func (r Rollout) Summary() Summary {
	s := Summary{State: StateHealthy, Condition: ConditionState, Reason: r.State, Message: r.Reason}
	if c := FindCondition(r.Stamp.Conditions, ConditionState); c != nil {
		s.Since = c.LastTransition
	}
	switch r.State {
	case "Planning", "Running", "Undoing":
		s.State = StateWorking
	case "Planned", "Paused":
		s.State = StateWaiting
	case "", "Draft":
		s.State = StateWaiting
		if r.Reason != "" { // it could not be planned
			s.State = StateFailing
		}
	}
	return s
}

// unreported returns the summary, or that the health is unknown if the site reports none.
func unreported(s Summary, conditions []Condition) Summary {
	if s.State == StateHealthy && ReportsNoHealth(conditions) {
		return Summary{State: StateUnknown, Condition: ConditionHealthy, Reason: ReasonHealthNotReported, Message: "no target of its site has reported its health"}
	}
	return s
}

// ReportsNoHealth reports whether conditions of a deployment or site say that its targets
// report no health. One that was scheduled by an older version of TKO and has no condition
// of health is one of these.
func ReportsNoHealth(conditions []Condition) bool {
	scheduled := FindCondition(conditions, ConditionScheduled)
	return HasCondition(conditions, ConditionHealthy, ReasonHealthNotReported) ||
		scheduled != nil && scheduled.Status == ConditionTrue && scheduled.Reason != ReasonNothingToSchedule && !HasCondition(conditions, ConditionHealthy)
}

// outdated returns the summary, or that the site reported on an earlier revision only.
func outdated(s Summary, stamp Stamp) Summary {
	if c := FindCondition(stamp.Conditions, ConditionScheduled); c != nil && c.ObservedRevision < stamp.Revision {
		return Summary{State: StateWorking, Condition: c.Type, Reason: "Outdated", Message: "the newest revision is not yet scheduled to its site", Since: stamp.Updated}
	}
	return s
}

// flagSummary describes an unset flag by its condition, if that has a reason.
func flagSummary(conditions []Condition, typ string, otherwise Summary) Summary {
	c := FindCondition(conditions, typ)
	if c == nil || c.Status == ConditionTrue || c.Reason == "" {
		return otherwise
	}
	s := conditionSummary(*c)
	if s.State == StateUnknown {
		s.State = otherwise.State
	}
	return s
}

// summarize returns the summary of the most urgent condition; its State is "" if
// there are no conditions.
func summarize(conditions []Condition) Summary {
	worst, rank := Summary{}, len(States())
	for _, c := range conditions {
		s := conditionSummary(c)
		if r := slices.Index(States(), s.State); r < rank {
			worst, rank = s, r
		}
	}
	return worst
}

// Unhealthy reports whether conditions of a deployment say that it fails, or that it isn't
// healthy at its site. It is false for one that merely waits, or was never scheduled.
func Unhealthy(conditions []Condition) bool {
	return slices.ContainsFunc(conditions, func(c Condition) bool {
		return c.Type == ConditionHealthy && c.Status == ConditionFalse || conditionSummary(c).State == StateFailing
	})
}

// Failing reports whether conditions of a deployment say that a revision of it is unhealthy
// at its site, or could not be prepared, placed or applied. It is false for one that is in
// progress, that waits, or of which nothing is known.
func Failing(conditions []Condition, revision int64) bool {
	return slices.ContainsFunc(conditions, func(c Condition) bool {
		switch c.Type {
		case ConditionPrepared, ConditionPlaced, ConditionScheduled, ConditionHealthy:
			return c.ObservedRevision == revision && c.Status == ConditionFalse && c.Reason != ReasonDrifted && conditionSummary(c).State == StateFailing
		}
		return false
	}) && !HasCondition(conditions, ConditionHealthy, ReasonUnreachable) // what it does is not known
}

func conditionSummary(c Condition) Summary {
	s := Summary{State: StateHealthy, Condition: c.Type, Reason: c.Reason, Message: c.Text(), Since: c.LastTransition}
	deleting := c.Type == ConditionDeleting
	switch {
	case deleting && c.Status == ConditionTrue:
		s.State = StateWorking
	case c.Type == ConditionFrozen && c.Status == ConditionTrue:
		s.State = StateWaiting
	case deleting || c.Type == ConditionFrozen || c.Status == ConditionTrue:
	case slices.Contains(reasonsToWait, c.Reason):
		s.State = StateWaiting
	case slices.Contains(reasonsOfWork, c.Reason):
		s.State = StateWorking
	case c.Status == ConditionUnknown, c.Reason == ReasonUnscheduled, c.Reason == ReasonSiteDeleted:
		s.State = StateUnknown
	default:
		s.State = StateFailing
	}
	return s
}

// StaysAtSite reports whether a site keeps what it has of a deployment that is not both prepared
// and approved: it is being prepared again, or has changed and is to be approved again.
func (d Deployment) StaysAtSite() bool {
	if d.Prepared && d.Approved {
		return false
	}
	c := FindCondition(d.Stamp.Conditions, ConditionApproved)
	return d.Approved || c != nil && c.Reason == ReasonApprovalWithdrawn
}
