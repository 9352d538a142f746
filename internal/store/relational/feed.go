package relational

import (
	"context"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/selection"
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
				SQL: "SELECT " + feedColumns + " FROM change c " +
					"WHERE position > $1 ORDER BY position LIMIT $2",
				Args: []any{after, int64(limit)},
				Scan: scanChange(&changes),
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

// History returns changes newest first, without those of conditions.
func (s *Store) History(ctx context.Context, q record.HistoryQuery) ([]tko.Change, error) {
	if q.Limit <= 0 {
		return nil, ctx.Err()
	}
	after := q.After
	if q.ID == "" {
		oldest, _, err := s.Past(ctx)
		if err != nil {
			return nil, err
		}
		after = max(after, oldest.Position)
	}
	var changes []tko.Change
	read := func(order string, where ...string) Statement {
		b := &selection.Builder{Dialect: &s.dialect}
		sql := "SELECT " + feedColumns + " FROM change c WHERE c.op <> 'status' AND c.position > " +
			b.Arg(after) + " AND c.position < " + b.Arg(q.Before) + " AND c.kind = " + b.Arg(string(q.Kind))
		sql += strings.Join(where, "")
		if q.ID != "" {
			sql += " AND c.id = " + b.Arg(q.ID)
		}
		return Statement{
			SQL: sql + " ORDER BY " + order + " DESC LIMIT " + b.Arg(int64(q.Limit)), Args: b.Args,
			Scan: scanChange(&changes),
		}
	}
	var err error
	if q.ID == "" {
		err = s.run(ctx, read("c.position"))
	} else { // by one index each
		err = s.run(ctx, read("c.revision", " AND c.op = 'written'"), read("c.position", " AND c.op = 'deleted' AND c.departed <> 0"))
	}
	if err != nil {
		return nil, fault("read the history", err)
	}
	slices.SortFunc(changes, func(a, b tko.Change) int { return int(b.Position - a.Position) })
	return changes[:min(len(changes), q.Limit)], nil
}

// feedColumns are the columns that scanChange reads.
const feedColumns = "c.position, c.kind, c.id, c.op, c.revision, c.updated, c.who, c.why"

func scanChange(changes *[]tko.Change) func(Row) error {
	return func(from Row) error {
		var c tko.Change
		var kind, op string
		var at int64
		err := from.Scan(&c.Position, &kind, &c.ID, &op, &c.Revision, &at, &c.Author.Who, &c.Author.Why)
		c.Kind, c.Op, c.Time = tko.Kind(kind), tko.Op(op), moment(at)
		*changes = append(*changes, c)
		return err
	}
}

// Head returns the position of the newest change.
func (s *Store) Head(ctx context.Context) (int64, error) { return s.headColumn(ctx, "position") }

// BeforeNewest returns the position after which there are the newest n changes.
func (s *Store) BeforeNewest(ctx context.Context, n int) (position int64, err error) {
	err = s.run(
		ctx,
		Statement{
			SQL:  "SELECT gone FROM head WHERE one = 1",
			Scan: func(from Row) error { return from.Scan(&position) },
		},
		Statement{
			SQL:  "SELECT c.position FROM change c WHERE c.position > (SELECT h.gone FROM head h WHERE h.one = 1) ORDER BY c.position DESC LIMIT 1 OFFSET $1",
			Args: []any{int64(max(0, n))},
			Scan: func(from Row) error {
				var before int64
				err := from.Scan(&before)
				position = max(position, before)
				return err
			},
		},
	)
	return position, fault("read the position of the newest changes", err)
}

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
