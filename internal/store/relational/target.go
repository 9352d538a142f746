package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// TargetState returns the state that a target saved for a site.
func (s *Store) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	state := tko.TargetState{Site: site, Name: name}
	if decide.CheckTexts("site", string(site), "name", name) != nil {
		return tko.TargetState{}, errNoTargetState(site, name)
	}
	err := s.run(ctx, Statement{
		SQL:  "SELECT version, updated, state FROM target_state WHERE site = $1 AND name = $2",
		Args: []any{string(site), name},
		Scan: func(from Row) error {
			var updated int64
			err := from.Scan(&state.Version, &updated, &state.State)
			state.Updated = moment(updated).In(time.UTC)
			return err
		},
	})
	if err != nil {
		return tko.TargetState{}, fault("read the state of a target", err)
	}
	if state.Version == 0 {
		return tko.TargetState{}, errNoTargetState(site, name)
	}
	return state, nil
}

func errNoTargetState(site tko.SiteID, name string) error {
	return tko.Errorf(tko.ErrNotFound, "state of target %q of site %q: not found", name, site)
}

// comparisonAge is how long comparisons of sites are retained.
const comparisonAge = time.Hour

// SaveTargetState writes the state of a target. A comparison of a site removes older
// ones, of all sites.
func (s *Store) SaveTargetState(ctx context.Context, state tko.TargetState, claim tko.WorkItem) (version int64, err error) {
	if err := decide.CheckTexts("site", string(state.Site), "name", state.Name); err != nil {
		return 0, err
	}
	if err := decide.CheckItem(claim); err != nil {
		return 0, err
	}
	data := state.State
	if data == nil {
		data = []byte{}
	}
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		if err := lockClaim(ctx, tx, claim); err != nil {
			return nil, err
		}
		version = 0
		err := tx.Run(ctx, Statement{
			SQL:  "SELECT version FROM target_state WHERE site = $1 AND name = $2",
			Args: []any{string(state.Site), state.Name},
			Scan: func(from Row) error { return from.Scan(&version) },
		})
		version++
		var statements []Statement
		if claim.Queue == tko.QueueCompare {
			statements = append(statements, Statement{
				SQL: "DELETE FROM target_state WHERE name = $1 AND updated < (SELECT {now} - $2)", Args: []any{tko.ComparisonState, comparisonAge.Microseconds()},
			})
		}
		return append(statements, Statement{
			SQL: "INSERT INTO target_state (site, name, version, updated, state) VALUES ($1, $2, $3, {now}, $4) " +
				"ON CONFLICT (site, name) DO UPDATE SET version = excluded.version, updated = excluded.updated, state = excluded.state",
			Args: []any{string(state.Site), state.Name, version, data},
		}), err
	})
	return version, fault("save the state of a target", err)
}
