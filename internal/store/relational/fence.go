package relational

import (
	"context"
	"strconv"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

// The names of facts in the table state.
const (
	stateFence   = "fence"   // the fencing epoch; there is none in a store that was never promoted
	stateStandby = "standby" // the store was restored, and not promoted since
)

// Fence returns the fencing epoch of the store.
func (s *Store) Fence(ctx context.Context) (f tko.Fence, err error) {
	err = s.run(ctx, readFence(&f))
	return f, fault("read the fencing epoch", err)
}

func readFence(f *tko.Fence) Statement {
	*f = tko.Fence{}
	return Statement{
		SQL: "SELECT name, value FROM state WHERE name IN ($1, $2)", Args: []any{stateFence, stateStandby},
		Scan: func(from Row) error {
			var name, value string
			err := from.Scan(&name, &value)
			if err != nil {
				return err
			}
			if name == stateStandby {
				f.Standby = true
				return nil
			}
			f.Epoch, err = strconv.ParseInt(value, 10, 64)
			return err
		},
	}
}

// A Promotion has the options of Promote.
type Promotion = backup.Promotion

// Promote raises the fencing epoch of the store beyond that of each store that was promoted before,
// by the clock of the database, and makes a restored store command agents. Agents that have seen it
// refuse all other stores with a lower one.
func (s *Store) Promote(ctx context.Context, p Promotion) (f tko.Fence, err error) {
	if f, err = s.Fence(ctx); err != nil {
		return f, err
	}
	if err := s.CheckComplete(ctx); err != nil {
		return f, err
	}
	if err := s.Audit(ctx, p.Record(f.Epoch)); err != nil {
		return f, err
	}
	made := int64(0) // by a try whose outcome is unknown
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		g := newGroup(s)
		if err := tx.Run(ctx, s.lockHead(&g.head, &g.now), readFence(&f)); err != nil || made != 0 && f.Epoch == made {
			return nil, err
		}
		f = tko.Fence{Epoch: p.Epoch(f.Epoch, g.now)}
		made = f.Epoch
		return promoted(f.Epoch), nil
	})
	return f, fault("promote the store", err)
}

// promoted returns the statements that give the store a fencing epoch.
func promoted(epoch int64) []Statement {
	return []Statement{
		{SQL: "DELETE FROM state WHERE name IN ($1, $2)", Args: []any{stateFence, stateStandby}},
		{SQL: "INSERT INTO state (name, value) VALUES ($1, $2)", Args: []any{stateFence, strconv.FormatInt(epoch, 10)}},
	}
}

// promoteStandby returns the statements that promote the store if it was restored and not promoted
// since.
func (s *Store) promoteStandby(ctx context.Context, tx Tx) ([]Statement, error) {
	g := newGroup(s)
	var f tko.Fence
	if err := tx.Run(ctx, s.lockHead(&g.head, &g.now), readFence(&f)); err != nil || !f.Standby {
		return nil, err
	}
	return promoted(Promotion{}.Epoch(f.Epoch, g.now)), nil
}
