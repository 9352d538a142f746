package relational

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/store/backup"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// The names of facts in the table state.
const (
	stateRestoring = "restoring" // a restore has begun, and is not complete
	stateRestored  = "restored"  // the last restore: its time, and the archive
)

// checkComplete returns an error if the store has an incomplete restore.
func (s *Store) checkComplete(ctx context.Context, tx Tx) error {
	since := ""
	err := tx.Run(ctx, Statement{
		SQL: "SELECT value FROM state WHERE name = $1", Args: []any{stateRestoring},
		Scan: func(from Row) error { return from.Scan(&since) },
	})
	if err == nil && since != "" {
		err = backup.Incomplete(since)
	}
	return err
}

// CheckComplete returns an ErrInvalid if the store has an incomplete restore.
func (s *Store) CheckComplete(ctx context.Context) error {
	return s.read(ctx, func(tx Tx) error { return s.checkComplete(ctx, tx) })
}

// A Restore has the options of a restore.
type Restore = backup.Restore

// Restore fills an empty store, or one with an incomplete restore, from an archive. The
// store must not be used by others meanwhile. If Restore fails or is interrupted after
// it has written something, the store is marked as incomplete, until a later Restore
// succeeds. Readers of the change log and of lists by position start anew. Work is held
// (see Holds), and the store commands no agents until it is promoted (see Promote).
func (s *Store) Restore(ctx context.Context, r io.Reader, o Restore) (archive.Summary, error) {
	var schema int64
	if err := s.run(ctx, schemaOf(&schema)); err != nil {
		return archive.Summary{}, fault("restore", err)
	}
	summary, left, err := o.Read(r, schema, backup.Target{
		Begin: func(archive.Manifest) error { return s.beginRestore(ctx) },
		Put:   func(t archive.Table, rows [][]any) error { return s.restoreRows(ctx, t, rows) },
	})
	if err != nil {
		return summary, err
	}
	for name, want := range summary.Rows {
		want -= left[name]
		got := int64(0)
		if err := s.run(ctx, Statement{SQL: "SELECT count(*) FROM " + name, Scan: func(from Row) error { return from.Scan(&got) }}); err != nil {
			return summary, fault("count what was restored", err)
		}
		if got != want {
			return summary, backup.OtherRows(name, got, want)
		}
	}
	return summary, s.endRestore(ctx, summary, o)
}

// beginRestore marks an empty store as incomplete, and empties one that is so marked.
func (s *Store) beginRestore(ctx context.Context) error {
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		g := newGroup(s)
		if err := tx.Run(ctx, s.lockHead(&g.head, &g.now)); err != nil {
			return nil, err
		}
		var marked, used int64
		var terms []string
		for _, t := range backup.Tables() {
			if !t.Single() {
				terms = append(terms, "EXISTS (SELECT 1 FROM "+t.Name+")")
			}
		}
		if err := tx.Run(ctx, Statement{
			SQL:  "SELECT (SELECT count(*) FROM state WHERE name = $1), CASE WHEN " + strings.Join(terms, " OR ") + " THEN 1 ELSE 0 END",
			Args: []any{stateRestoring},
			Scan: func(from Row) error { return from.Scan(&marked, &used) },
		}); err != nil {
			return nil, err
		}
		if marked == 0 && (used != 0 || g.head.position != 0 || g.head.access != 0) {
			return nil, backup.ErrNotEmpty
		}
		var statements []Statement
		for _, t := range backup.Tables() {
			statements = append(statements, Statement{SQL: "DELETE FROM " + t.Name})
		}
		return append(
			statements,
			Statement{SQL: "DELETE FROM hold"},
			Statement{SQL: "DELETE FROM state WHERE name IN ($1, $2, $3, $4)", Args: []any{stateRestoring, stateRestored, stateFence, stateStandby}},
			Statement{SQL: "INSERT INTO state (name, value) VALUES ($1, $2)", Args: []any{stateRestoring, "begun " + g.now.UTC().Format(time.RFC3339)}},
		), nil
	})
}

// restoreRows inserts rows. It may run again after it was committed.
func (s *Store) restoreRows(ctx context.Context, t archive.Table, rows [][]any) error {
	types := map[archive.Type]sqldb.Type{archive.Text: Text, archive.Int: Int, archive.Bytes: Bytes, archive.Bool: Bool}
	columns := make([]Column, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = types[c.Type].As(c.Name)
	}
	insert := sqldb.Insert(t.Name, columns...)
	insert.SQL += " ON CONFLICT DO NOTHING"
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		marked := false
		if err := tx.Run(ctx, Statement{
			SQL: "SELECT name FROM state WHERE name = $1", Args: []any{stateRestoring},
			Scan: sqldb.Found(&marked),
		}); err != nil {
			return nil, err
		}
		if !marked {
			return nil, backup.ErrEnded
		}
		return []Statement{insert.With(rows)}, nil
	})
}

// endRestore makes a restored store usable.
func (s *Store) endRestore(ctx context.Context, summary archive.Summary, o Restore) error {
	m := summary.Manifest
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		g := newGroup(s)
		if err := tx.Run(ctx, s.lockHead(&g.head, &g.now)); err != nil {
			return nil, err
		}
		var marked int64
		if err := tx.Run(ctx, Statement{
			SQL: "SELECT count(*) FROM state WHERE name = $1", Args: []any{stateRestoring},
			Scan: func(from Row) error { return from.Scan(&marked) },
		}); err != nil {
			return nil, err
		}
		if marked == 0 { // an earlier try was committed
			return nil, nil
		}
		if g.head.position != 0 {
			return nil, backup.ErrWritten
		}
		position := backup.NextPosition(m, g.now)
		g.head = head{position: position, epoch: position, number: m.Number, audited: m.Audited, chain: hashOf(m.Chain)}
		g.audits = []audit.Record{backup.Record(summary, o)}
		audits, err := g.auditStatements()
		if err != nil {
			return nil, err
		}
		// Rows of rollouts keep their versions, so the version of rollouts is beyond them,
		// too.
		access := "$3"
		if o.WithoutAccess {
			access = "CASE WHEN EXISTS (SELECT 1 FROM access_rule) THEN $3 ELSE 0 END"
		}
		statements := slices.Concat(audits, []Statement{
			g.saveHead(),
			{SQL: "UPDATE head SET gone = $1, collected = $2, access = " + access + ", rollouts = $1, tallied = -1 WHERE one = 1", Args: []any{position, m.Collected + 1, m.Access}},
			{SQL: "UPDATE collector SET holder = '', until = 0 WHERE one = 1"},
			{SQL: "UPDATE notifier SET holder = '', until = 0 WHERE one = 1"},
			// Leases and delays are those of another time.
			{SQL: "UPDATE work SET due = {now}, since = {now}, lease_until = 0, claim = '', claimed = 0, claimed_generation = 0"},
			// Targets may be newer than the store: each site that was scheduled is reconciled.
			{
				SQL: "INSERT INTO work (queue, key, generation, due, attempt, last_error, lease_until, claim, claimed, claimed_generation, since) " +
					"SELECT $1, e.id, 1, {now}, 0, '', 0, '', 0, 0, {now} FROM entity e WHERE e.kind = 'site' AND e.conditions IS NOT NULL ON CONFLICT DO NOTHING",
				Args: []any{tko.QueueSchedule},
			},
			{SQL: "INSERT INTO hold (queue, key, mode) SELECT $1, e.id, $2 FROM entity e WHERE e.kind = 'site'", Args: []any{tko.QueueSchedule, tko.HoldAll}},
		})
		for _, queue := range backup.HeldQueues() {
			statements = append(statements, Statement{SQL: "INSERT INTO hold (queue, key, mode) VALUES ($1, '', $2)", Args: []any{queue, tko.HoldAll}})
		}
		if m.Fence != 0 {
			statements = append(statements, promoted(m.Fence)...)
		}
		return append(
			statements,
			Statement{SQL: "DELETE FROM state WHERE name = $1", Args: []any{stateRestoring}},
			Statement{SQL: "INSERT INTO state (name, value) VALUES ($1, $2)", Args: []any{stateStandby, "since the restore of " + g.now.UTC().Format(time.RFC3339)}},
			Statement{
				SQL:  "INSERT INTO state (name, value) VALUES ($1, $2)",
				Args: []any{stateRestored, backup.Restored(g.now, summary)},
			},
		), nil
	})
}
