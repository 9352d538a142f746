// Package report has the report of a built-in target of the meta-scheduler on a
// site. An error that concerns the whole site is not part of it.
package report

import (
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Report is the result of reconciling a site. The zero value says nothing: what a target
// has applied needs a receipt.
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
	// Receipts are the target's statements about what it has applied and observed. Without
	// one, no condition Scheduled or Healthy of the deployment or the site becomes True.
	Receipts    map[tko.DeploymentID]Receipt
	SiteReceipt Receipt
	// Removals is the outcome of removals that need an approval; empty if none ever did.
	Removals Outcome
	// Requeue is the time until the next reconciliation if nothing changes. If 0,
	// there is none.
	Requeue time.Duration
}

// A Receipt is the statement of a target about one revision of a deployment, or of the site's
// package. Only targets make receipts, with Attest and AttestSite, of what they have applied; the
// zero Receipt states nothing. The fields are exported for the encoding between programs.
type Receipt struct {
	Revision  int64
	Delivered bool // all that the revision has for the target is there
	Healthy   bool // and healthy
}

// Attest makes the receipt of a revision of a deployment from its state in the report: a target
// calls it after it has set the state, with the revision that it was given.
func (r *Report) Attest(id tko.DeploymentID, revision int64) {
	if r.Receipts == nil {
		r.Receipts = map[tko.DeploymentID]Receipt{}
	}
	r.Receipts[id] = r.Deployments[id].attest(revision)
}

// AttestSite makes the receipt of the site at a revision. An empty outcome Scheduled of the
// site stands for success.
func (r *Report) AttestSite(revision int64) {
	state := r.Site
	if state.Scheduled.Status == "" {
		state.Scheduled.Status = tko.ConditionTrue
	}
	r.SiteReceipt = state.attest(revision)
}

func (s State) attest(revision int64) Receipt {
	return Receipt{Revision: revision, Delivered: s.Scheduled.Status == tko.ConditionTrue, Healthy: s.Healthy.Status == tko.ConditionTrue}
}

// Of reports whether the receipt states the condition Scheduled or Healthy of a revision.
func (r Receipt) Of(condition string, revision int64) bool {
	switch condition {
	case tko.ConditionScheduled:
		return r.Delivered && r.Revision == revision
	case tko.ConditionHealthy:
		return r.Healthy && r.Revision == revision
	}
	return false
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
const ReasonNothing = tko.ReasonNothingToSchedule

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
