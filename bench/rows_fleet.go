package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
)

const (
	rowFleet        = "status of the whole fleet"
	rowFleetCounted = "status of the fleet, each entity read"

	aimFleet          = time.Second
	maxFleetSamples   = 20
	maxCountedSamples = 3 // each reads all entities
)

// fleetStatus measures the summary of the whole fleet, and the same of all sites by a pattern: for
// that the server reads each entity, as it does for callers who may read a part.
func (r *run) fleetStatus(ctx context.Context) error {
	status := func(sel tko.FleetSelect, samples int) ([]time.Duration, tko.Fleet, error) {
		var fleet tko.Fleet
		took, err := sample(ctx, samples, func(ctx context.Context) (err error) {
			fleet, err = r.client.Fleet(ctx, sel)
			if err == nil && fleet.Deployments.Total < r.Deployments && len(sel.Sites) == 0 {
				err = fmt.Errorf("the status has %d deployments, want %d at least", fleet.Deployments.Total, r.Deployments)
			}
			return err
		})
		return took, fleet, err
	}
	took, fleet, err := status(tko.FleetSelect{}, min(r.Samples, maxFleetSamples))
	if err != nil {
		return err
	}
	how := "the numbers are at hand"
	if !fleet.Exact {
		how = "each entity was read"
	}
	r.add(latency(rowFleet, took, aimFleet).with(how, thousands(fleet.Deployments.Total)+" deployments"))
	took, fleet, err = status(tko.FleetSelect{Sites: []string{"**"}}, min(r.Samples, maxCountedSamples))
	if err == nil {
		r.add(latency(rowFleetCounted, took, 0).with(thousands(fleet.Deployments.Total) + " deployments at sites"))
	}
	return err
}
