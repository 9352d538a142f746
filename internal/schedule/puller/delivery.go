package puller

import (
	"context"

	"github.com/tko-orchestrator/tko"
)

// A Delivery is what a target has written for a site.
type Delivery struct {
	Removed []tko.DeploymentID // from where it was written
	// In returns what revisions, as tools report them, have of the delivery. It compares
	// contents, so that later revisions of other sites or clients count, and reverted ones
	// don't. Revisions that the target doesn't know are left out.
	In func(ctx context.Context, revisions []string) (Contents, error)
}

// Contents are what revisions have of each deployment of a delivery, by the revision.
type Contents map[string]map[tko.DeploymentID]Content

// Best returns what the best of some revisions has of a deployment: tools may name revisions of
// several sources.
func (c Contents) Best(id tko.DeploymentID, revisions []string) (best Content) {
	for _, revision := range revisions {
		if content, ok := c[revision][id]; ok && (best.Presence == "" || content.Presence == Same) {
			best = content
		}
	}
	return best
}
