// Package report is what a built-in target of the meta-scheduler says of a
// site, beyond an error that concerns all of it.
package report

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Report is what came of a look at a site. The zero value says that every
// deployment is there, and nothing of how it does.
type Report struct {
	// Removed are deployments that were there and aren't any more.
	Removed []tko.DeploymentID
	// Kept are deployments that are not wanted for now, and were left as they
	// are all the same.
	Kept []tko.DeploymentID
	// Site and Deployments say how they are: also when there is an error.
	Site        State
	Deployments map[tko.DeploymentID]State
	// Requeue is when to look again though nothing changed; never if 0.
	Requeue time.Duration
}

// A State is what is said of a site or a deployment.
type State struct {
	Scheduled Outcome
	Healthy   Outcome
}

// A Outcome is a condition without its type. Nothing is said if the status is
// empty.
type Outcome struct {
	Status  string // tko.ConditionTrue and so on
	Reason  string // CamelCase
	Message string
	// Note is a part of the message that is worth keeping as long as the rest
	// of it stays the same: something that happened.
	Note string
}

// ReasonNothing is of a deployment that has nothing for its site.
const ReasonNothing = "NothingToSchedule"

// Nothing is the verdict on a deployment of which nothing is for the site.
func Nothing() Outcome {
	return Outcome{Status: tko.ConditionTrue, Reason: ReasonNothing, Message: "nothing of it goes to the site: each resource is in a nephio.org group without the annotation " +
		krm.AnnotationDeploy + ": \"true\", or has " + krm.AnnotationLocal + ": \"true\""}
}
