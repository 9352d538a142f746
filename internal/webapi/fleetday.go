package webapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Limits of the numbers of the last day.
const (
	dayTime  = 24 * time.Hour
	dayStep  = 5 * time.Minute
	dayRetry = 10 * time.Second // after which numbers are asked for again that were not at hand
)

// A FleetDay keeps the numbers of the whole fleet over the last day, in memory: of each five
// minutes those at their beginning. What the store doesn't have at hand then is missing.
type FleetDay struct {
	fleets Fleets

	mu     sync.Mutex
	points []fleetPointBody
}

// NewFleetDay makes a FleetDay that has no numbers yet.
func NewFleetDay(fleets Fleets) *FleetDay { return &FleetDay{fleets: fleets} }

// Run takes the numbers every five minutes until the context ends. Its identity must be one that
// may read the whole fleet.
func (d *FleetDay) Run(ctx context.Context) error {
	for {
		now := time.Now()
		wait := time.Until(now.Truncate(dayStep).Add(dayStep))
		if !d.take(ctx, now) {
			wait = min(wait, dayRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// take adds the numbers of now, if they are at hand. Errors are those of the store, whose
// observer counts them: here they leave a gap.
func (d *FleetDay) take(ctx context.Context, now time.Time) (taken bool) {
	fleet, ok, err := d.fleets.FleetAtHand(ctx)
	if err != nil || !ok {
		return false
	}
	n := fleet.Deployments
	point := fleetPointBody{
		Time: now.UnixMilli(), Failing: n.State(tko.StateFailing), Working: n.State(tko.StateWorking), Healthy: n.State(tko.StateHealthy),
		Reporting: n.Total - n.State(tko.StateUnknown), Unapproved: unapproved(fleet),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.points = append(d.before(now), point)
	return true
}

// before returns a copy of the numbers of the day before a time. The caller holds the lock.
func (d *FleetDay) before(now time.Time) []fleetPointBody {
	begin, end := now.Add(-dayTime).UnixMilli(), now.UnixMilli() // a clock may have been set back
	points := make([]fleetPointBody, 0, len(d.points)+1)
	for _, p := range d.points {
		if p.Time > begin && p.Time <= end {
			points = append(points, p)
		}
	}
	return points
}

// A fleetDayBody is the numbers of the whole fleet over the last day.
type fleetDayBody struct {
	Begin  int64            `json:"begin"`  // Unix milliseconds
	End    int64            `json:"end"`    // Unix milliseconds: now
	Step   int64            `json:"step"`   // milliseconds between two points; where more are, the numbers aren't known
	Points []fleetPointBody `json:"points"` // in their order; none for callers who may read a part
}

// A fleetPointBody is the numbers of deployments at a time.
type fleetPointBody struct {
	Time       int64 `json:"time"` // Unix milliseconds
	Failing    int   `json:"failing"`
	Working    int   `json:"working"`
	Healthy    int   `json:"healthy"`
	Reporting  int   `json:"reporting"`  // whose health is known
	Unapproved int   `json:"unapproved"` // prepared, and wait for an approval
}

// fleetDay responds with the numbers of the whole fleet over the last day, as far as this server
// has taken them, to callers who may read all of it. No entity is read.
func (l *live) fleetDay(r *http.Request) (*fleetDayBody, error) {
	q := queryOf(r)
	q.only()
	if q.err != nil {
		return nil, q.err
	}
	now := time.Now()
	body := &fleetDayBody{Begin: now.Add(-dayTime).UnixMilli(), End: now.UnixMilli(), Step: dayStep.Milliseconds(), Points: []fleetPointBody{}}
	if l.catalog.Fleets == nil || l.catalog.Day == nil {
		return body, nil
	}
	_, ok, err := l.catalog.FleetAtHand(r.Context()) // which checks that the caller may read everything
	if err != nil || !ok {
		return body, err
	}
	l.catalog.Day.mu.Lock()
	defer l.catalog.Day.mu.Unlock()
	body.Points = l.catalog.Day.before(now)
	return body, nil
}
