// Package report has the report of a built-in target of the meta-scheduler on a
// site. An error that concerns the whole site is not part of it.
package report

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Report is the result of reconciling a site. The zero value reports that all
// deployments are applied, and nothing about their health.
type Report struct {
	// Removed are the deployments that the target removed from the site.
	Removed []tko.DeploymentID
	// Kept are the deployments that are not to be applied for now, and that the
	// target left on the site unchanged.
	Kept []tko.DeploymentID
	// Site and Deployments are the states of the site and of its deployments. They
	// are valid also if there is an error.
	Site        State
	Deployments map[tko.DeploymentID]State
	// Requeue is the time until the next reconciliation if nothing changes. If 0,
	// there is none.
	Requeue time.Duration
}

// A State has the outcomes of a site or a deployment, by condition.
type State struct {
	Scheduled Outcome
	Healthy   Outcome
}

// An Outcome is a condition without its type. If Status is empty, there is no
// condition to report.
type Outcome struct {
	Status  string // tko.ConditionTrue and so on
	Reason  string // CamelCase
	Message string
	// Note is appended to the message. It reports an event, and stays in the
	// condition as long as the rest of the outcome is the same.
	Note string
}

// ReasonNothing is the reason of deployments without resources for their site.
const ReasonNothing = "NothingToSchedule"

// Nothing returns the outcome of a deployment without resources for its site.
func Nothing() Outcome {
	return Outcome{Status: tko.ConditionTrue, Reason: ReasonNothing, Message: "no resources are for the site: each resource is in a nephio.org group without the annotation " +
		krm.AnnotationDeploy + ": \"true\", or has " + krm.AnnotationLocal + ": \"true\""}
}

// Differences are the result of comparing a site with a target. They are valid also if
// there is an error, which says what couldn't be compared.
type Differences struct {
	Changes    []tko.SiteChange // what the next reconciliation would do
	Orphans    []tko.SiteChange // what is there and belongs to no deployment
	Unsearched []string         // where orphans couldn't be looked for, and why
}
