// Package trigger describes the resources that trigger the Kubernetes target, and
// the reasons of the conditions that the target sets. It has no client of
// Kubernetes: the meta-scheduler plans with it, and the target applies elsewhere,
// in the program tko-kubernetes.
package trigger

import "github.com/tko-orchestrator/tko/krm"

// Reasons of the conditions that this target sets.
const (
	ReasonApplied     = "Applied"            // the deployment's objects are applied
	ReasonFailed      = "Failed"             // some objects could not be applied; the scheduler tries again
	ReasonInvalid     = "Invalid"            // some objects can't be applied until the package changes
	ReasonWaiting     = "Waiting"            // an object waits for another one, or for another controller
	ReasonDrifted     = "Drifted"            // another client changed an object, and TKO doesn't correct it
	ReasonRemoving    = "Removing"           // objects that are no longer wanted are being removed
	ReasonApproval    = "WaitsForApproval"   // the removals exceed the budget
	ReasonNoApproval  = "NothingToApprove"   // all removals are within the budget, or approved
	ReasonReplacing   = "ReplacementWaiting" // replaced objects stay until the new ones are healthy, or are removed before these are created
	ReasonOverdue     = "ReplacementOverdue" // the new objects take longer to become healthy than spec.replace.timeout; the replaced ones stay
	ReasonHealthy     = "Healthy"            // all objects are healthy
	ReasonInProgress  = "InProgress"         // some objects are in progress
	ReasonUnhealthy   = "Unhealthy"          // some objects have failed
	ReasonUnreachable = "Unreachable"        // the cluster can't be reached
	ReasonUnknown     = "NotObserved"        // the cluster can't be read; the Scheduled condition has the reason
)

// Reasons of the condition on a cluster that a site's package no longer names.
const (
	ReasonLeft    = "Left"    // the applied objects stay, without reconciliation
	ReasonRemoved = "Removed" // the applied objects are removed
)

// Cluster implements the methods of a Kubernetes target that only read triggers.
type Cluster struct{}

// Namespace returns the default namespace of a trigger's resources.
func (Cluster) Namespace(trigger krm.Resource) string {
	s, err := Read(trigger)
	if err != nil {
		return DefaultNamespace
	}
	return s.Namespace
}

// Same returns whether two resources of a site's package, the older first, name the
// same cluster and inventories: then the new one takes over the objects of the old
// one.
func (Cluster) Same(former, now krm.Resource) bool {
	a, err := Read(former)
	if err != nil {
		return true // it never applied anything
	}
	b, err := Read(now)
	return err == nil && a.Kubeconfig == b.Kubeconfig && a.Inventory == b.Inventory
}

// Place returns the name of a resource's cluster, as in the outcomes of Leave; empty
// if the resource is invalid.
func (Cluster) Place(trigger krm.Resource) string {
	s, err := Read(trigger)
	if err != nil {
		return ""
	}
	return s.Kubeconfig.String()
}
