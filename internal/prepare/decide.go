package prepare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the Prepared and Approved conditions, in addition to those of
// package topology.
const (
	ReasonPrepared          = "Prepared"          // all resources are prepared
	ReasonWaiting           = "Waiting"           // a resource can only be prepared later
	ReasonRunning           = "Running"           // a plugin's work continues in another system
	ReasonInvalid           = "Invalid"           // the package is not completely valid
	ReasonPluginFailed      = "PluginFailed"      // a plugin failed, or returned what can't be stored
	ReasonTooManyIterations = "TooManyIterations" // the preparation doesn't end
	ReasonTOSCAFailed       = "TOSCAFailed"       // a service template can't be read or compiled
	ReasonPipelineFailed    = "PipelineFailed"    // a function of a Kptfile's pipeline failed
	ReasonApproved          = "Approved"          // automatically or before
	ReasonHeld              = "Held"              // the owner of the deployment doesn't have the rights
	ReasonNotApproved       = "WaitsForApproval"  // a user must approve it
)

// maxMessage bounds the message of a condition, in bytes, below Kubernetes' limit.
const maxMessage = 30 * 1024

// maxReason bounds the reason of a revision, in bytes, below what the data
// controller accepts.
const maxReason = 1000

// preparable reports whether a resource is to be prepared in this deployment.
func (t triggerMap) preparable(r krm.Resource) bool {
	if r.IsPrepared() {
		return false
	}
	if where := r.Annotation(krm.AnnotationPrepare); where != "" && where != krm.Here {
		return false
	}
	gvk := r.GVK()
	return topology.Prepares(gvk) || len(t[gvk]) > 0 || r.RunsPipeline()
}

// tasks returns the preparable resources of a package, in its order.
func (t triggerMap) tasks(pkg krm.Package) []krm.Identity {
	var ids []krm.Identity
	for _, r := range pkg {
		if t.preparable(r) {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}

// builtIn reports whether TKO itself prepares a kind. TKO doesn't prepare TOSCA if
// a plugin is registered for it.
func (t triggerMap) builtIn(gvk krm.GVK) bool {
	if gvk == topology.TOSCAGVK && len(t[gvk]) > 0 {
		return false
	}
	return topology.Prepares(gvk)
}

// stalled reports whether another reconciliation of a deployment would only repeat
// an endless loop, because neither the deployment nor its plugins have changed since.
func stalled(d tko.Deployment, plugins triggerMap) (message string, ok bool) {
	c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPrepared)
	if c == nil || c.Reason != ReasonTooManyIterations || c.ObservedRevision != d.Stamp.Revision {
		return "", false
	}
	tasks := plugins.tasks(d.Package)
	for _, id := range tasks {
		for _, p := range plugins[id.GVK] {
			if p.Stamp.Position > d.Stamp.Position {
				return "", false
			}
		}
	}
	return c.Text(), len(tasks) > 0
}

// finished returns a package whose resources are all prepared with its Deployment
// resource marked prepared and, unless it needs a user's approval, approved.
func finished(d tko.Deployment, pkg krm.Package, manual bool) (out krm.Package, approved bool, err error) {
	resource, err := pkg.Deployment()
	if err != nil {
		return nil, false, err
	}
	if resource == nil {
		approved = d.Approved || !manual
		return pkg.WithDeployment(string(d.Template), string(d.Site), true, approved), approved, nil
	}
	state, err := krm.ReadDeployment(resource)
	if err != nil {
		return nil, false, err
	}
	approved = state.Approved != nil && *state.Approved
	switch state.Approve {
	case krm.Auto:
		approved = true
	case krm.Manual:
	default:
		approved = approved || !manual
	}
	resource = resource.Clone()
	resource.SetPrepared()
	if approved {
		resource.SetAnnotation(krm.AnnotationApproved, "true")
	}
	return replace(pkg, resource), approved, nil
}

// unfinished returns a plugin's output with its Deployment resource not marked
// prepared; marked reports whether the plugin had marked it. If the plugin left the
// resource out, the one of the input is added, with its approval policy.
func unfinished(before, pkg krm.Package) (out krm.Package, marked bool, err error) {
	resource, err := pkg.Deployment()
	if err != nil {
		return nil, false, err
	}
	if resource == nil {
		was, err := before.Deployment()
		if err != nil || was == nil {
			return pkg, false, err
		}
		return append(slices.Clip(pkg), was), false, nil
	}
	if !resource.IsPrepared() {
		return pkg, false, nil
	}
	resource = resource.Clone()
	resource.SetAnnotation(krm.AnnotationPrepared, "")
	return replace(pkg, resource), true, nil
}

// replace returns a copy of a package with resource in place of the one of the same
// identity.
func replace(pkg krm.Package, resource krm.Resource) krm.Package {
	out := append(krm.Package(nil), pkg...)
	out[pkg.Index(resource.Identity())] = resource
	return out
}

// conditionsOfFinished returns the conditions of a prepared deployment. A withdrawn
// approval stays reported, because the site keeps what was approved.
func conditionsOfFinished(current []tko.Condition, revision int64, approved bool) []tko.Condition {
	prepared := tko.Condition{
		Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: ReasonPrepared,
		Message: "everything is prepared", ObservedRevision: revision,
	}
	approval := tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionTrue, Reason: ReasonApproved, ObservedRevision: revision,
	}
	if !approved && tko.HasCondition(current, tko.ConditionApproved, tko.ReasonApprovalWithdrawn) {
		return []tko.Condition{prepared}
	}
	if !approved {
		approval.Status, approval.Reason = tko.ConditionFalse, ReasonNotApproved
		approval.Message = "a user must approve it"
	}
	return []tko.Condition{prepared, approval}
}

// unprepared returns the Prepared condition of a deployment that isn't prepared:
// its problems, the attempt and, if known, the time of the next one. attempt counts
// the failures before.
func unprepared(revision int64, problems []problem, attempt int, next time.Time) tko.Condition {
	const most = 10
	var lines []string
	for i, p := range problems {
		if i == most {
			lines = append(lines, fmt.Sprintf("and %d more", len(problems)-most))
			break
		}
		lines = append(lines, p.message)
	}
	c := tko.Condition{
		Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: problems[0].reason,
		Message: bounded(strings.Join(lines, "; ")), ObservedRevision: revision,
	}
	switch problems[0].reason {
	case ReasonWaiting, ReasonRunning, ReasonHeld, topology.ReasonWaitsForApproval:
	case ReasonTooManyIterations: // only a change helps
		c.Attempt = attempt + 1
	default:
		c.Attempt, c.NextTry = attempt+1, next.UTC().Truncate(time.Second)
	}
	return c
}

// bounded returns a message of at most maxMessage bytes and an ellipsis.
func bounded(message string) string { return printable.Short(message, maxMessage) }

// differs reports whether a condition differs from the current one of its type.
func differs(conditions []tko.Condition, c tko.Condition) bool {
	old := tko.FindCondition(conditions, c.Type)
	return old == nil || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedRevision != c.ObservedRevision ||
		old.Attempt != c.Attempt || !old.NextTry.Equal(c.NextTry)
}

// retryWaiting returns the time until the next reconciliation of a deployment that
// waits: a quarter of the time for which the condition has had its status.
func retryWaiting(conditions []tko.Condition, typ, reason string, now time.Time) time.Duration {
	if c := tko.FindCondition(conditions, typ); c != nil && c.Reason == reason {
		return min(max(now.Sub(c.LastTransition)/4, minRetryWait), maxRetryWait)
	}
	return minRetryWait
}

// backoff returns how long failed work waits: twice as long after each failure.
func (p *Preparer) backoff(attempt int) time.Duration {
	wait := min(p.options.Backoff<<min(attempt, 12), p.options.MaxBackoff)
	return pause.Between(wait-wait/4, wait)
}

// retryStalled returns the time until the next reconciliation where only a change
// helps.
func retryStalled(attempt int) time.Duration {
	return min(minRetryStall<<min(attempt, 10), maxRetryStall)
}
