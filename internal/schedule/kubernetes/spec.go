package kubernetes

import "github.com/tko-orchestrator/tko/internal/schedule/trigger"

// GVK is the kind of the resources that trigger this target.
var GVK = trigger.GVK

type (
	spec          = trigger.Spec
	kubeconfigRef = trigger.KubeconfigRef
	pointer       = trigger.Pointer
)

// Reasons of the conditions that this target sets.
const (
	ReasonApplied     = trigger.ReasonApplied
	ReasonFailed      = trigger.ReasonFailed
	ReasonInvalid     = trigger.ReasonInvalid
	ReasonWaiting     = trigger.ReasonWaiting
	ReasonDrifted     = trigger.ReasonDrifted
	ReasonRemoving    = trigger.ReasonRemoving
	ReasonApproval    = trigger.ReasonApproval
	ReasonHealthy     = trigger.ReasonHealthy
	ReasonInProgress  = trigger.ReasonInProgress
	ReasonUnhealthy   = trigger.ReasonUnhealthy
	ReasonUnreachable = trigger.ReasonUnreachable
	ReasonUnknown     = trigger.ReasonUnknown
	ReasonLeft        = trigger.ReasonLeft
	ReasonRemoved     = trigger.ReasonRemoved
)
