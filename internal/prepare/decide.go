package prepare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prepare/topology"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of the Prepared and Approved conditions, beside those of package
// topology.
const (
	ReasonPrepared          = "Prepared"          // everything is
	ReasonWaiting           = "Waiting"           // a resource will be prepared later
	ReasonInvalid           = "Invalid"           // the package is not completely valid
	ReasonPluginFailed      = "PluginFailed"      // a plugin failed, or answered what can't be stored
	ReasonTooManyIterations = "TooManyIterations" // preparing goes on for ever
	ReasonTOSCAFailed       = "TOSCAFailed"       // a service template can't be read or compiled
	ReasonApproved          = "Approved"          // by itself or before
	ReasonNotApproved       = "WaitsForApproval"  // somebody must approve it
)

// maxMessage bounds the message of a condition, below what Kubernetes takes.
const maxMessage = 30 * 1024

// maxReason bounds the reason of a revision, in bytes, below what the data
// controller accepts.
const maxReason = 1000

// preparable says whether a resource is to be prepared in this deployment.
func (t triggerMap) preparable(r krm.Resource) bool {
	if r.IsPrepared() {
		return false
	}
	if where := r.Annotation(krm.AnnotationPrepare); where != "" && where != krm.Here {
		return false
	}
	gvk := r.GVK()
	return topology.Prepares(gvk) || len(t[gvk]) > 0
}

// tasks are the resources of a package that are preparable, in its order.
func (t triggerMap) tasks(pkg krm.Package) []krm.Identity {
	var ids []krm.Identity
	for _, r := range pkg {
		if t.preparable(r) {
			ids = append(ids, r.Identity())
		}
	}
	return ids
}

// builtIn says whether a kind is prepared by TKO itself. TOSCA is not, if a
// plugin is registered for it.
func (t triggerMap) builtIn(gvk krm.GVK) bool {
	if gvk == topology.TOSCAGVK && len(t[gvk]) > 0 {
		return false
	}
	return topology.Prepares(gvk)
}

// stalled says whether looking at a deployment again would only repeat an
// endless loop: neither it nor the plugins have changed since.
func stalled(d tko.Deployment, plugins triggerMap) (message string, ok bool) {
	for _, c := range d.Stamp.Conditions {
		if c.Type != tko.ConditionPrepared || c.Reason != ReasonTooManyIterations || c.ObservedRevision != d.Stamp.Revision {
			continue
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
	return "", false
}

// finished is a package whose resources are all prepared: its Deployment
// resource says so, and is approved if it may be.
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

// unfinished is a package that a plugin made of another one, with its
// Deployment resource not marked prepared; if the plugin left that out, it is
// there as it was, with what it says about approval.
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

// replace answers a package with one resource replaced by another one of its
// identity.
func replace(pkg krm.Package, resource krm.Resource) krm.Package {
	out := append(krm.Package(nil), pkg...)
	out[pkg.Index(resource.Identity())] = resource
	return out
}

// conditionsOfFinished are the conditions of a deployment that is prepared. An
// approval that was withdrawn still says so: its site keeps what was approved.
func conditionsOfFinished(current []tko.Condition, revision int64, approved bool) []tko.Condition {
	prepared := tko.Condition{
		Type: tko.ConditionPrepared, Status: tko.ConditionTrue, Reason: ReasonPrepared,
		Message: "everything is prepared", ObservedRevision: revision,
	}
	approval := tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionTrue, Reason: ReasonApproved, ObservedRevision: revision,
	}
	if !approved && slices.ContainsFunc(current, isWithdrawn) {
		return []tko.Condition{prepared}
	}
	if !approved {
		approval.Status, approval.Reason = tko.ConditionFalse, ReasonNotApproved
		approval.Message = "somebody must approve it"
	}
	return []tko.Condition{prepared, approval}
}

func isWithdrawn(c tko.Condition) bool {
	return c.Type == tko.ConditionApproved && c.Reason == tko.ReasonApprovalWithdrawn
}

// unprepared is the condition of a deployment that isn't prepared, and why.
// It says when it is tried again, if that is known.
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
	case ReasonWaiting:
	case ReasonTooManyIterations: // only a change helps
		c.Attempt = attempt + 1
	default:
		c.Attempt, c.NextTry = attempt+1, next.UTC().Truncate(time.Second)
	}
	return c
}

// bounded is a message of at most the length that conditions take.
func bounded(message string) string { return shortened(message, maxMessage) }

// shortened is a text of at most limit bytes, and an ellipsis if it was longer.
func shortened(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// news says whether a condition says something that the deployment doesn't say
// already.
func news(conditions []tko.Condition, c tko.Condition) bool {
	for _, old := range conditions {
		if old.Type == c.Type {
			return old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message || old.ObservedRevision != c.ObservedRevision ||
				old.Attempt != c.Attempt || !old.NextTry.Equal(c.NextTry)
		}
	}
	return true
}

// retryWaiting is when to look again at what waits: the longer it has waited,
// the less often.
func retryWaiting(conditions []tko.Condition, typ, reason string, now time.Time) time.Duration {
	for _, c := range conditions {
		if c.Type == typ && c.Reason == reason {
			return min(max(now.Sub(c.LastTransition)/4, minRetryWait), maxRetryWait)
		}
	}
	return minRetryWait
}

// backoff is how long failed work waits: twice as long with every failure.
func (p *Preparer) backoff(attempt int) time.Duration {
	wait := min(p.options.Backoff<<min(attempt, 12), p.options.MaxBackoff)
	return wait - rand.N(wait/4+1) //nolint:gosec // jitter is no secret
}

// retryStalled is when to look again although only a change will help.
func retryStalled(attempt int) time.Duration {
	return min(minRetryStall<<min(attempt, 10), maxRetryStall)
}
