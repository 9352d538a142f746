package schedule

import (
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
)

// askAgain is the time after which the meta-scheduler looks whether what it wrote about a silent
// agent is there.
const askAgain = 5 * time.Second

// isDelivered reports whether the site's agent is the only one that applies something.
func (p plan) isDelivered() bool { return p.agent && len(p.steps) == 0 }

// withoutAgent returns conditions of which none says that all is there, if the agent of the site
// has a part in it: it has made no statement.
func (p plan) withoutAgent(all []conditionOf) []conditionOf {
	if !p.agent {
		return all
	}
	for i := range all {
		if c := &all[i].condition; c.Status == tko.ConditionTrue && (c.Type == tko.ConditionScheduled || c.Type == tko.ConditionHealthy) {
			c.Status, c.Reason = tko.ConditionUnknown, tko.ReasonTwoTargets
			c.Message = "the site has a Cluster with spec.agent, and another target: what the agent applied is not known; keep one of them"
		}
	}
	return all
}

// byAgent returns the conditions of a site that only its agent changes, from bundles: nothing is
// known of a revision until the agent reports it. What it has reported stays, also while a
// deployment is prepared again: the site keeps it.
func byAgent(seen snapshot) []conditionOf {
	unknown := report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonByAgent, Message: fmt.Sprintf(
		"the agent of site %q applies it, and has not reported this revision: carry it there with tko bundle create --site %s, and read the agent's report with tko bundle report --write", seen.site.ID, seen.site.ID)}
	if tko.HasCondition(seen.site.Stamp.Conditions, tko.ConditionConnected) {
		unknown.Message = fmt.Sprintf("the agent of site %q applies it, and has not reported this revision: see the condition %s of the site, and tko-agent there", seen.site.ID, tko.ConditionConnected)
	}
	var all []conditionOf
	for _, d := range seen.deployments {
		if d.Prepared && d.Approved && !seen.holds(d) {
			all = append(all, unreported(entity{tko.KindDeployment, string(d.ID), d.Stamp}, unknown)...)
		}
	}
	return append(all, unreported(entity{tko.KindSite, string(seen.site.ID), seen.site.Stamp}, unknown)...)
}

// unreported returns the conditions of an entity of whose revision no agent has reported the same.
func unreported(e entity, unknown report.Outcome) []conditionOf {
	s := e.stamp
	var all []conditionOf
	for _, condition := range []string{tko.ConditionScheduled, tko.ConditionHealthy} {
		// An agent that is heard again reports everything again.
		if was := tko.FindCondition(s.Conditions, condition); !s.IsReported(condition) && (was == nil || was.Reason != tko.ReasonNotHeard || was.ObservedRevision != s.Revision) {
			all = append(all, e.ifNew(condition, unknown)...)
		}
	}
	return all
}

// silence returns what follows from that the agent of a site was not heard: the conditions of the
// site and of its deployments, none of which is healthy from memory; and the time until that is to
// be asked again, because it was heard lately, or because the server may say that it was: by its
// own clock, or as the agent is back. Sites whose agent never connected have neither. A site that
// has an agent no longer is not away.
func silence(seen snapshot, p plan, now time.Time) (all []conditionOf, again time.Duration) {
	connected := tko.FindCondition(seen.site.Stamp.Conditions, tko.ConditionConnected)
	if connected == nil {
		return nil, 0
	}
	if !p.agent {
		none := report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonNoAgent, Message: "the package of the site has no Cluster with spec.agent"}
		all = siteCondition(seen.site, tko.ConditionConnected, none)
		if tko.HasCondition(seen.site.Stamp.Conditions, tko.ConditionHeldByOwner) {
			all = append(all, siteCondition(seen.site, tko.ConditionHeldByOwner, none)...)
		}
		return all, 0
	}
	since, by, heard := tko.HeardAt(connected)
	if heard && now.Before(by) {
		return nil, max(by.Sub(now), time.Second)
	}
	text := connected.Message // of a certificate that was revoked, or as it was written before
	if heard {
		text = tko.NotHeardText(seen.site.ID, since)
		all = siteCondition(seen.site, tko.ConditionConnected, report.Outcome{
			Status: tko.ConditionFalse, Reason: tko.ReasonNotHeard, Message: text,
		})
	}
	unknown := report.Outcome{Status: tko.ConditionUnknown, Reason: tko.ReasonNotHeard, Message: text}
	for _, d := range seen.deployments {
		if tko.HasCondition(d.Stamp.Conditions, tko.ConditionHealthy) {
			all = append(all, deploymentCondition(d, tko.ConditionHealthy, unknown)...)
		}
	}
	all = append(all, siteCondition(seen.site, tko.ConditionHealthy, unknown)...)
	if len(all) > 0 {
		again = askAgain
	}
	return all, again
}
