package schedule_test

import (
	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
)

// clusters makes the Kubernetes target of a scheduler, in this process.
func clusters(o kubernetes.Options) func(enqueue func(...tko.SiteID)) schedule.Clusters {
	return func(enqueue func(...tko.SiteID)) schedule.Clusters {
		o.Enqueue = func(id tko.SiteID) { enqueue(id) }
		return kubernetes.New(o)
	}
}
