package relational

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
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
		err = tko.Errorf(tko.ErrInvalid, "the store holds the beginning of a restore (%s) and can't be used: run tko-server restore again, which begins anew", since)
	}
	return err
}

// CheckComplete returns an ErrInvalid if the store has an incomplete restore.
func (s *Store) CheckComplete(ctx context.Context) error {
	return s.read(ctx, func(tx Tx) error { return s.checkComplete(ctx, tx) })
}

// A Restore has the options of a restore. The zero value works.
type Restore struct {
	// WithoutAccess leaves out the rights of clients. Freezes and definitions of sources,
	// which are stored with them, are restored.
	WithoutAccess bool
	// Progress, if not nil, receives the number of restored rows.
	Progress func(rows int64)
	// Started is called once the archive's manifest was read, before anything is
	// written. If it returns an error, nothing is restored.
	Started func(archive.Manifest) error
}

// positionsSkipped is the minimum number of positions that a restore skips: changes
// after the backup, in the store that was lost, had them.
const positionsSkipped = 1_000_000_000

// Restore fills an empty store, or one with an incomplete restore, from an archive. The
// store must not be used by others meanwhile. If Restore fails or is interrupted after
// it has written something, the store is marked as incomplete, until a later Restore
// succeeds. Readers of the change log and of lists by position start anew. Work is held
// (see Holds), and the store commands no agents until it is promoted (see Promote).
func (s *Store) Restore(ctx context.Context, r io.Reader, o Restore) (archive.Summary, error) {
	tables := map[string]savedTable{}
	for _, t := range savedTables() {
		tables[t.Name] = t
	}
	var manifest archive.Manifest
	var rows, left, schema int64 // left: rows that are left out
	if err := s.run(ctx, schemaOf(&schema)); err != nil {
		return archive.Summary{}, fault("restore", err)
	}
	summary, err := archive.Read(r, archive.Handlers{
		Manifest: func(m archive.Manifest) error {
			manifest = m
			if m.Schema > schema {
				return tko.Errorf(tko.ErrInvalid, "the archive has the schema %d of a newer TKO, this one knows %d: use the newer TKO", m.Schema, schema)
			}
			if o.Started != nil {
				if err := o.Started(m); err != nil {
					return err
				}
			}
			return s.beginRestore(ctx)
		},
		Table: func(t archive.Table) error {
			known, ok := tables[t.Name]
			if !ok {
				return tko.Errorf(tko.ErrInvalid, "the archive has the unknown table %q: use the TKO that wrote it (%s)", t.Name, manifest.Program)
			}
			return checkColumns(t, known)
		},
		Rows: func(t archive.Table, list [][]any) error {
			if o.WithoutAccess && t.Name == accessRules {
				all := len(list)
				list = withoutRights(t, list)
				left += int64(all - len(list))
			}
			known := tables[t.Name]
			t, list, err := known.complete(t, list)
			if err == nil {
				err = s.restoreRows(ctx, t, list)
			}
			if err != nil {
				return fault("restore the table "+t.Name, err)
			}
			rows += int64(len(list))
			if o.Progress != nil {
				o.Progress(rows)
			}
			return nil
		},
	})
	if err != nil {
		return summary, err
	}
	for name, want := range summary.Rows {
		if name == accessRules {
			want -= left
		}
		got := int64(0)
		if err := s.run(ctx, Statement{SQL: "SELECT count(*) FROM " + name, Scan: func(from Row) error { return from.Scan(&got) }}); err != nil {
			return summary, fault("count what was restored", err)
		}
		if got != want {
			return summary, tko.Errorf(tko.ErrInvalid, "the table %s has %d rows after the restore, and the archive %d: stop all servers on the store, and restore again", name, got, want)
		}
	}
	return summary, s.endRestore(ctx, summary, o)
}

const accessRules = "access_rule"

// withoutRights returns the rows of the rules of access without the rights of clients.
func withoutRights(t archive.Table, rows [][]any) [][]any {
	at := slices.IndexFunc(t.Columns, func(c archive.Column) bool { return c.Name == "kind" })
	return slices.DeleteFunc(rows, func(row []any) bool {
		kind, _ := row[at].(string)
		return record.AccessRule{Kind: kind}.IsRight()
	})
}

// complete adds the columns to rows that an archive of an earlier version lacks and
// whose values follow from the others.
func (t *savedTable) complete(has archive.Table, rows [][]any) (archive.Table, [][]any, error) {
	positions := map[string]int{}
	for i, c := range has.Columns {
		positions[c.Name] = i
	}
	for _, c := range t.Columns {
		value := t.absent[c.Name]
		if _, ok := positions[c.Name]; ok || value == nil {
			continue
		}
		has.Columns = append(slices.Clip(has.Columns), c)
		for i, row := range rows {
			v, err := value(func(name string) any { return row[positions[name]] })
			if err != nil {
				return has, nil, err
			}
			rows[i] = append(slices.Clip(row), v)
		}
	}
	return has, rows, nil
}

func checkColumns(t archive.Table, known savedTable) error {
	types := map[string]archive.Column{}
	for _, c := range known.Columns {
		types[c.Name] = c
	}
	for _, c := range t.Columns {
		if types[c.Name] != c {
			return tko.Errorf(tko.ErrInvalid, "the table %s of the archive has the unknown column %q: use the TKO that wrote it", t.Name, c.Name)
		}
	}
	return nil
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
		for _, t := range savedTables() {
			if !t.single() {
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
			return nil, tko.Errorf(tko.ErrConflict, "the store is not empty: restore into a new database (PostgreSQL) or a new file (SQLite), and start servers with it instead")
		}
		var statements []Statement
		for _, t := range savedTables() {
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
			return nil, tko.Errorf(tko.ErrConflict, "another restore into the store has ended meanwhile")
		}
		return []Statement{insert.With(rows)}, nil
	})
}

// The queues that are held as a whole after a restore: their workers change records,
// run plugins, delete what their sources no longer name, or send tickets and messages to the
// same destinations as the store that the backup is of, which may still be in use.
var heldQueues = []string{tko.QueuePrepare, tko.QueueGitOps, tko.QueueRollout, tko.QueueNotify}

// restoreRecord is the audit record of a restore: it names the head of the log that
// the backup has, because another log may continue from there.
func restoreRecord(summary archive.Summary, o Restore) audit.Record {
	m := summary.Manifest
	detail := fmt.Sprintf("from the backup of %s with the SHA-256 %s, at position %d; the audit log continues after record %d with the hash %x",
		m.Created.UTC().Format(time.RFC3339), summary.Digest, m.Position, m.Audited, m.Chain)
	if o.WithoutAccess {
		detail += "; without the rights of clients"
	}
	return audit.Record{Caller: audit.Caller{Subject: "process", Action: "restore", Decision: audit.Allow}, Kind: "store", Op: "restored", Detail: detail}
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
			return nil, tko.Errorf(tko.ErrConflict, "a server has written to the store during the restore: stop all servers on it, and restore again")
		}
		// Clients may know positions of the lost store, and of an earlier restore of the
		// same archive. The time in microseconds is beyond both.
		position := max(m.Position+positionsSkipped, micros(g.now))
		g.head = head{position: position, epoch: position, number: m.Number, audited: m.Audited, chain: hashOf(m.Chain)}
		g.audits = []audit.Record{restoreRecord(summary, o)}
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
		for _, queue := range heldQueues {
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
				Args: []any{stateRestored, fmt.Sprintf("%s from the backup of %s, %s", g.now.UTC().Format(time.RFC3339), m.Created.UTC().Format(time.RFC3339), summary.Digest)},
			},
		), nil
	})
}
