package kubernetes

import "github.com/tko-orchestrator/tko/internal/schedule/trigger"

// GVK is the kind of the resources that trigger this target.
var GVK = trigger.GVK

type (
	spec          = trigger.Spec
	kubeconfigRef = trigger.KubeconfigRef
	pointer       = trigger.Pointer
)
