package relational

import (
	"context"

	"github.com/tko-orchestrator/tko"
)

// Changes returns the changes after a position, up to limit.
func (s *Store) Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error) {
	if limit <= 0 {
		return nil, ctx.Err()
	}
	var gone int64
	var changes []tko.Change
	err := s.read(ctx, func(tx Tx) error {
		changes = nil
		return tx.Commit(
			ctx,
			Statement{
				SQL:  "SELECT gone FROM head WHERE one = 1",
				Scan: func(from Row) error { return from.Scan(&gone) },
			},
			Statement{
				SQL: "SELECT position, kind, id, op, revision, updated, who, why FROM change " +
					"WHERE position > $1 ORDER BY position LIMIT $2",
				Args: []any{after, int64(limit)},
				Scan: func(from Row) error {
					var c tko.Change
					var kind, op string
					var at int64
					err := from.Scan(&c.Position, &kind, &c.ID, &op, &c.Revision, &at, &c.Author.Who, &c.Author.Why)
					c.Kind, c.Op, c.Time = tko.Kind(kind), tko.Op(op), moment(at)
					changes = append(changes, c)
					return err
				},
			},
		)
	})
	if err != nil {
		return nil, fault("read changes", err)
	}
	if after < gone {
		return nil, tko.Errorf(tko.ErrGone, "changes up to %d are no longer retained: list again", gone)
	}
	return changes, nil
}

// Head returns the position of the newest change.
func (s *Store) Head(ctx context.Context) (int64, error) { return s.headColumn(ctx, "position") }

// Epoch returns the position of the newest change to plugins and custom resource
// definitions, against which packages are validated.
func (s *Store) Epoch(ctx context.Context) (int64, error) { return s.headColumn(ctx, "epoch") }

func (s *Store) headColumn(ctx context.Context, column string) (value int64, err error) {
	err = s.run(ctx, Statement{
		SQL:  "SELECT " + column + " FROM head WHERE one = 1",
		Scan: func(from Row) error { return from.Scan(&value) },
	})
	return value, fault("read the head", err)
}

// read runs fn on one snapshot. It may run more than once.
func (s *Store) read(ctx context.Context, fn func(tx Tx) error) error {
	return s.retry(ctx, func() error {
		tx, err := s.db.Begin(ctx, Read)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return fn(tx)
	})
}
