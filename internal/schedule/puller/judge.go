package puller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// Reasons of the condition Healthy of deployments that other tools apply. Those of objects
// that are applied are the reasons of clusters.
const (
	ReasonNotApplied  = tko.ReasonNotYetApplied    // the tool has not applied the revision yet
	ReasonSuperseded  = tko.ReasonSuperseded       // the tool applied other content, which another client wrote
	ReasonSuspended   = tko.ReasonPullSuspended    // the tool is suspended
	ReasonSilent      = tko.ReasonPullSilent       // the tool has not reported for too long
	ReasonMissing     = tko.ReasonPullMissing      // the object of the tool doesn't exist
	ReasonUnchecked   = tko.ReasonHealthNotChecked // the tool reports only that it applied the objects
	ReasonUnreachable = trigger.ReasonUnreachable
	ReasonNotObserved = trigger.ReasonUnknown
)

// Reasons are all reasons of health that Judge gives.
var Reasons = []string{
	trigger.ReasonHealthy, trigger.ReasonInProgress, trigger.ReasonUnhealthy,
	ReasonNotApplied, ReasonSuperseded, ReasonSuspended, ReasonSilent, ReasonMissing, ReasonUnchecked, ReasonUnreachable, ReasonNotObserved,
}

// A Presence is what a revision has of a deployment.
type Presence string

// The values of presence. The zero value is that the target doesn't know the revision.
const (
	Same    Presence = "Same"    // the content that the target wrote
	Earlier Presence = "Earlier" // an earlier revision, or nothing
	Other   Presence = "Other"   // content that others wrote
)

// A Content is what some revisions have of a deployment.
type Content struct {
	Presence Presence
	Revision int64 // of the deployment, in the revision; 0 if it has none
}

// A Commit is what is known of a deployment that was written.
type Commit struct {
	Objects            []int // positions in the question
	Applied, Attempted Content
}

const fewObjects = 3

// Judge returns the health of a deployment.
func (r Report) Judge(s Spec, q Question, c Commit, now time.Time) report.Outcome {
	unknown := func(reason, format string, args ...any) report.Outcome {
		return report.Outcome{Status: tko.ConditionUnknown, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.Unreachable:
		return unknown(ReasonUnreachable, "%s can't be read: %s", s, r.Problem)
	case r.Problem != "":
		return unknown(ReasonNotObserved, "%s can't be read: %s", s, r.Problem)
	case r.Missing:
		return unknown(ReasonMissing, "%s doesn't exist: create it, or correct spec.status of the resource that names it", s)
	}
	applied := c.Applied.Presence == Same && !r.moved(s, c) || r.AttemptApplied && c.Attempted.Presence == Same
	live := applied && r.live(c)
	age := now.Sub(r.At)
	switch {
	case r.Suspended && !live:
		return unknown(ReasonSuspended, "%s is suspended, so nothing is applied, and its status is of the past: resume it", s)
	case !r.Suspended && !r.At.IsZero() && age > r.Silence(s):
		return unknown(ReasonSilent, "%s has not been reconciled for %s: find out whether its controller runs, or raise spec.status.%s.silence", s, age.Round(time.Minute), s.Tool)
	case r.Unobserved:
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonNotApplied, Message: fmt.Sprintf("the controller of %s has not yet seen its newest generation", s)}
	case !applied:
		return r.pending(s, c)
	}
	return r.ofObjects(s, q, c, live)
}

// moved reports whether the tool has tried another content since it applied the newest one: the
// objects may be of either.
func (r Report) moved(s Spec, c Commit) bool {
	return s.Tool == Flux && r.Health != Healthy && len(r.Attempted) > 0 && c.Attempted.Presence != Same
}

// live reports whether the health of each object of a deployment is known by itself.
func (r Report) live(c Commit) bool {
	for _, i := range c.Objects {
		if i >= len(r.Objects) || !r.Objects[i].Known {
			return false
		}
	}
	return true
}

// Silence returns the maximum age of a report.
func (r Report) Silence(s Spec) time.Duration {
	if s.Silence > 0 {
		return s.Silence
	}
	return max(DefaultSilence, 2*r.Interval)
}

// pending returns the health of a deployment whose newest revision isn't applied.
func (r Report) pending(s Spec, c Commit) report.Outcome {
	no := func(reason, format string, args ...any) report.Outcome {
		return report.Outcome{Status: tko.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	says := ""
	if r.Message != "" {
		says = ": " + r.Message
	}
	at := cmp.Or(strings.Join(r.Applied, ", "), "no revision")
	switch {
	case c.Attempted.Presence == Same && r.Health == Unhealthy:
		return no(trigger.ReasonUnhealthy, "%s could not apply it%s", s, cmp.Or(says, ": it gives no reason"))
	case c.Applied.Presence == Same:
		return no(ReasonNotApplied, "%s has tried %s since, which has other content of the deployment%s", s, strings.Join(r.Attempted, ", "), says)
	case c.Applied.Presence == Other:
		return no(ReasonSuperseded, "%s has applied %s, in which another client has changed the folder of the deployment: it was superseded before it was applied, and is written again", s, at)
	case len(r.Applied) > 0 && c.Applied.Presence == "":
		return no(ReasonNotApplied, "%s has applied %s, which is not a revision of what TKO writes for the site%s", s, at, says)
	case c.Applied.Revision > 0:
		return no(ReasonNotApplied, "%s has applied %s, which has revision %d of the deployment%s", s, at, c.Applied.Revision, says)
	}
	return no(ReasonNotApplied, "%s has applied %s, which doesn't have the deployment%s", s, at, says)
}

// ofObjects returns the health of a deployment whose newest revision is applied: that of its
// objects if it is known, and otherwise that of all that the tool applied.
func (r Report) ofObjects(s Spec, q Question, c Commit, live bool) report.Outcome {
	rank := map[Health]int{Healthy: 0, "": 0, InProgress: 1, Unhealthy: 2}
	worst := Healthy
	var sick, absent, stale, unread []string
	for _, i := range c.Objects {
		var found Found
		if i < len(r.Objects) {
			found = r.Objects[i]
		}
		name := q.Objects[i].String()
		switch {
		case !found.Listed:
			absent = append(absent, name)
		case !found.Synced:
			stale = append(stale, name)
		case !found.Known && found.Why != "":
			unread = append(unread, name+" "+found.Why)
		case found.Known && rank[found.Health] > 0:
			sick = append(sick, name+" "+found.Why)
			if rank[found.Health] > rank[worst] {
				worst = found.Health
			}
		}
	}
	no := func(reason, format string, args ...any) report.Outcome {
		return report.Outcome{Status: tko.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	failed := len(absent)+len(stale) > 0 && c.Attempted.Presence == Same && r.Health == Unhealthy
	switch {
	case failed:
		return no(trigger.ReasonUnhealthy, "%s could not apply it: %s", s, cmp.Or(r.Message, "it gives no reason"))
	case len(absent) > 0:
		return no(ReasonNotApplied, "%s has applied the revision, but doesn't list %s: its path must be the site's folder, or one above", s, few(absent))
	case len(stale) > 0:
		return no(ReasonNotApplied, "%s reports that objects are not yet as they are in the revision: %s%s", s, few(stale), prefixed(r.Message))
	case live && worst == Healthy:
		return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonHealthy, Message: fmt.Sprintf("%d objects are healthy, as %s applied them", len(c.Objects), s)}
	case worst == Unhealthy || live:
		return no(string(worst), "%s", few(sick))
	case !r.Checks:
		return report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnchecked, Message: fmt.Sprintf(
			"%s reports only that it applied the objects%s: set its spec.wait, or let the kubeconfig read the objects where the Kustomization applies them", s, prefixed(few(unread)))}
	case r.Health == Healthy:
		return report.Outcome{Status: tko.ConditionTrue, Reason: trigger.ReasonHealthy, Message: s.String() + " reports that all that it applied is healthy"}
	case r.Health == "":
		return report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnchecked, Message: fmt.Sprintf("%s reports no health%s", s, prefixed(r.Message))}
	}
	return no(string(r.Health), "%s reports of all that it applied: %s", s, cmp.Or(r.Message, string(r.Health)))
}

func prefixed(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// few joins the first lines, and adds the number of the rest.
func few(lines []string) string {
	text := strings.Join(lines[:min(len(lines), fewObjects)], "; ")
	if more := len(lines) - fewObjects; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return printable.Text(text)
}
