package webapi

import (
	"context"
	"net/http"

	"github.com/tko-orchestrator/tko"
)

// Fleets have the numbers of the whole fleet at hand, if the caller may read all of it.
type Fleets interface {
	FleetAtHand(ctx context.Context) (fleet tko.Fleet, ok bool, err error)
}

// A fleetBody is the numbers of all sites and deployments by their states.
type fleetBody struct {
	Exact       bool              `json:"exact"`              // no change until the position is missing; without it, there are no numbers: count them
	Position    Position          `json:"position,omitempty"` // of the newest change
	Time        int64             `json:"time,omitempty"`     // Unix milliseconds
	Sites       map[tko.State]int `json:"sites"`
	Deployments map[tko.State]int `json:"deployments"`
	Unapproved  int               `json:"unapproved"` // prepared deployments that wait for an approval
}

// fleet responds with the numbers of the whole fleet, if no entity must be read for them. They are
// the same as those of tko status.
func (l *live) fleet(r *http.Request) (*fleetBody, error) {
	q := queryOf(r)
	q.only("asOf")
	ctx := q.past(r.Context())
	if q.err != nil {
		return nil, q.err
	}
	body := &fleetBody{Sites: map[tko.State]int{}, Deployments: map[tko.State]int{}}
	if l.catalog.Fleets == nil {
		return body, nil
	}
	fleet, ok, err := l.catalog.FleetAtHand(ctx)
	if err != nil || !ok {
		return body, err
	}
	body.Exact, body.Position, body.Time = true, Position(fleet.Position), fleet.Time.UnixMilli()
	body.Sites, body.Deployments, body.Unapproved = statesOf(fleet.Sites), statesOf(fleet.Deployments), unapproved(fleet)
	return body, nil
}

// statesOf returns the numbers of entities in each state, of those that some have.
func statesOf(c tko.FleetCounts) map[tko.State]int {
	of := map[tko.State]int{}
	for _, state := range tko.States() {
		if n := c.State(state); n > 0 {
			of[state] = n
		}
	}
	return of
}

// unapproved returns how many deployments of a fleet wait for an approval.
func unapproved(f tko.Fleet) int {
	return f.Waiting(tko.KindDeployment, tko.WaitsApproval) + f.Waiting(tko.KindDeployment, tko.WaitsWithdrawn)
}
