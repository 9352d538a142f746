package relational

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
)

// A savedTable is a table of a backup.
type savedTable struct {
	archive.Table

	// key are the columns that order the rows: those of an index. Rows are read in
	// chunks, each after the last key of the one before.
	key []string
	// kinds reports that rows are read for each kind of entity by itself.
	kinds bool
	chunk int
}

func textual(name string) archive.Column { return archive.Column{Name: name, Type: archive.Text} }
func number(name string) archive.Column {
	return archive.Column{Name: name, Type: archive.Int}
}
func content(name string) archive.Column { return archive.Column{Name: name, Type: archive.Bytes} }
func flag(name string) archive.Column    { return archive.Column{Name: name, Type: archive.Bool} }

func optional(c archive.Column) archive.Column {
	c.Null = true
	return c
}

// smallChunk is the number of rows with packages that are read at once.
const (
	largeChunk = 2000
	smallChunk = 200
)

func saved(name string, chunk int, key string, columns ...archive.Column) savedTable {
	return savedTable{Table: archive.Table{Name: name, Columns: columns}, key: strings.Fields(key), chunk: chunk}
}

// savedTables are the tables of a backup. The others are not in it: modification tokens
// (rights of clients of the old store), the times of wakes, holds and the state of the
// store itself. The head is in the manifest.
func savedTables() []savedTable {
	entity := saved(
		"entity", largeChunk, "id",
		textual("kind"), textual("id"), textual("uid"), number("revision"), number("position"), number("created"), number("updated"), textual("parent"), textual("template"), textual("site"),
		flag("prepared"), flag("approved"), optional(textual("origin")), optional(content("digest")), number("metaset"), optional(content("plugin")), flag("crds"),
		textual("who"), textual("why"), optional(textual("conditions")), optional(textual("replaces")), number("base"), optional(content("derivation")),
	)
	entity.kinds = true
	return []savedTable{
		saved("blob", smallChunk, "digest", content("digest"), number("encoding"), number("size"), content("data")),
		saved("metaset", largeChunk, "id", number("id"), content("digest"), textual("doc")),
		entity,
		saved("pair", largeChunk, "id", number("id"), textual("kind"), textual("key"), textual("value"), textual("start"), content("hash")),
		saved("entity_pair", largeChunk, "pair id", number("pair"), textual("id")),
		saved("metaset_pair", largeChunk, "pair metaset", number("pair"), number("metaset")),
		saved(
			"change", largeChunk, "position",
			number("position"), textual("kind"), textual("id"), textual("op"), textual("uid"), number("revision"), number("created"), number("updated"), textual("parent"), textual("template"),
			textual("site"), flag("prepared"), flag("approved"), optional(textual("origin")), optional(content("digest")), number("metaset"), optional(content("plugin")), flag("crds"),
			textual("who"), textual("why"), optional(textual("steps")), optional(content("derivation")), number("departed"), number("base"),
		),
		saved(
			"work", largeChunk, "queue key",
			textual("queue"), textual("key"), number("generation"), number("due"), number("attempt"), textual("last_error"), number("lease_until"), textual("claim"), number("claimed"),
			number("claimed_generation"), number("since"), textual("cause"),
		),
		saved("source", smallChunk, "name", textual("name"), number("version"), number("updated"), content("status"), content("state"), textual("approved")),
		saved("target_state", smallChunk, "site name", textual("site"), textual("name"), number("version"), number("updated"), content("state")),
		saved("rollout", largeChunk, "id", textual("id"), flag("active"), textual("undoes"), number("started"), textual("doc")),
		saved("rollout_plan", smallChunk, "rollout plan", textual("rollout"), number("plan"), textual("doc")),
		saved(
			"rollout_row", largeChunk, "rollout plan deployment",
			textual("rollout"), number("plan"), textual("deployment"), textual("uid"), number("revision"), number("kind"), number("wave"), number("rank"), optional(content("before")),
			optional(content("after")), number("grp"), textual("parent"), textual("site"), textual("progress"), number("since"), number("evaluated"), number("credit"), flag("counted"),
			flag("broken"), textual("reason"), number("applied"), number("chain"), number("target"), textual("doc"),
		),
		saved("rollout_pin", largeChunk, "rollout kind id revision", textual("rollout"), textual("kind"), textual("id"), number("revision")),
		saved("flight", largeChunk, "deployment", textual("deployment"), textual("rollout"), textual("site"), textual("doc")),
		saved("access_rule", largeChunk, "kind id", textual("kind"), textual("id"), textual("doc")),
		saved("audit", largeChunk, "seq", number("seq"), number("at"), textual("doc"), content("hash")),
		saved("audit_sink", largeChunk, "name", textual("name"), number("seq")),
		saved("sealing_key", largeChunk, "id", number("id"), number("version"), content("wrapped")),
		saved("audit_base", largeChunk, "one", number("one"), number("seq"), content("hash")),
		saved("collector", largeChunk, "one", number("one"), textual("holder"), number("until"), number("position"), number("revisions"), number("loose"), number("past"), number("past_at")),
		saved("longer", largeChunk, "id", textual("id"), textual("policy"), number("changes")),
	}
}

// single reports whether a table always has one row.
func (t *savedTable) single() bool { return t.key[0] == "one" }

// Archive writes everything in the store, as of one snapshot, while writes go on. It
// holds at most a chunk of rows in memory. The archive is complete only if Archive
// returns no error.
func (s *Store) Archive(ctx context.Context, w io.Writer, program string) (archive.Summary, error) {
	tx, err := s.db.Begin(ctx, List)
	if err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	defer tx.Rollback()
	m := archive.Manifest{Program: program, Backend: s.backend}
	if err := tx.Run(ctx, schemaOf(&m.Schema)); err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	var now, sealed int64
	if err := tx.Run(ctx, Statement{
		SQL: "SELECT position, epoch, number, collected, access, audited, chain, (SELECT count(*) FROM sealing_key), {now} FROM head WHERE one = 1",
		Scan: func(from Row) error {
			return from.Scan(&m.Position, &m.Epoch, &m.Number, &m.Collected, &m.Access, &m.Audited, &m.Chain, &sealed, &now)
		},
	}); err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	m.Created, m.Sealed = moment(now).UTC(), sealed > 0
	if err := s.checkComplete(ctx, tx); err != nil {
		return archive.Summary{}, err
	}
	out, err := archive.NewWriter(w, m)
	if err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	for _, t := range savedTables() {
		if err := s.saveTable(ctx, tx, out, &t); err != nil {
			out.Abort()
			return archive.Summary{}, fault("back up the table "+t.Name, err)
		}
	}
	summary, err := out.Close()
	return summary, fault("back up", err)
}

// Backup is Archive without the summary.
func (s *Store) Backup(ctx context.Context, w io.Writer, program string) error {
	_, err := s.Archive(ctx, w, program)
	return err
}

func (s *Store) saveTable(ctx context.Context, tx Tx, out *archive.Writer, t *savedTable) error {
	if err := out.Table(t.Table); err != nil {
		return err
	}
	if !t.kinds {
		return s.saveRows(ctx, tx, out, t, "")
	}
	for _, kind := range []tko.Kind{tko.KindPlugin, tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout} {
		if err := s.saveRows(ctx, tx, out, t, kind); err != nil {
			return err
		}
	}
	return nil
}

// saveRows writes the rows of a table, or of a kind in it, in the order of the key.
func (s *Store) saveRows(ctx context.Context, tx Tx, out *archive.Writer, t *savedTable, kind tko.Kind) error {
	names := make([]string, len(t.Columns))
	positions := map[string]int{}
	for i, c := range t.Columns {
		names[i], positions[c.Name] = c.Name, i
	}
	var last []any // the key of the last row
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		var b strings.Builder
		var args []any
		arg := func(v any) string {
			args = append(args, v)
			return parameter(len(args))
		}
		b.WriteString("SELECT " + strings.Join(names, ", ") + " FROM " + t.Name + " WHERE 1 = 1")
		if kind != "" {
			b.WriteString(" AND kind = " + arg(string(kind)))
		}
		if last != nil {
			values := make([]string, len(last))
			for i, v := range last {
				values[i] = arg(v)
			}
			b.WriteString(" AND (" + strings.Join(t.key, ", ") + ") > (" + strings.Join(values, ", ") + ")")
		}
		b.WriteString(" ORDER BY " + strings.Join(t.key, ", ") + " LIMIT " + strconv.Itoa(t.chunk))
		n := 0
		err := tx.Run(ctx, Statement{SQL: b.String(), Args: args, Scan: func(from Row) error {
			row, err := scanColumns(from, t.Columns)
			if err != nil {
				return err
			}
			last = last[:0]
			for _, name := range t.key {
				last = append(last, row[positions[name]])
			}
			n++
			return out.Row(row)
		}})
		if err != nil || n < t.chunk {
			return err
		}
	}
}

// scanColumns returns the values of a row; nil for NULL.
func scanColumns(from Row, columns []archive.Column) ([]any, error) {
	to := make([]any, len(columns))
	for i, c := range columns {
		switch c.Type {
		case archive.Text:
			to[i] = new(*string)
		case archive.Int:
			to[i] = new(*int64)
		case archive.Bool:
			to[i] = new(*bool)
		case archive.Bytes:
			to[i] = new([]byte)
		}
	}
	if err := from.Scan(to...); err != nil {
		return nil, err
	}
	for i, v := range to {
		switch v := v.(type) {
		case **string:
			to[i] = valueOf(*v)
		case **int64:
			to[i] = valueOf(*v)
		case **bool:
			to[i] = valueOf(*v)
		case *[]byte:
			to[i] = *v
			if *v == nil {
				to[i] = nil
				if !columns[i].Null { // a driver reads empty bytes as NULL
					to[i] = []byte{}
				}
			}
		}
	}
	return to, nil
}

func valueOf[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

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
	// WithoutAccess leaves out the rules of access.
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
// (see Holds).
func (s *Store) Restore(ctx context.Context, r io.Reader, o Restore) (archive.Summary, error) {
	tables := map[string]savedTable{}
	for _, t := range savedTables() {
		tables[t.Name] = t
	}
	var manifest archive.Manifest
	var rows, schema int64
	if err := s.run(ctx, schemaOf(&schema)); err != nil {
		return archive.Summary{}, fault("restore", err)
	}
	skipped := func(t archive.Table) bool { return o.WithoutAccess && t.Name == "access_rule" }
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
			if skipped(t) {
				return nil
			}
			if err := s.restoreRows(ctx, t, list); err != nil {
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
		if o.WithoutAccess && name == "access_rule" {
			want = 0
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
			Statement{SQL: "DELETE FROM state WHERE name IN ($1, $2)", Args: []any{stateRestoring, stateRestored}},
			Statement{SQL: "INSERT INTO state (name, value) VALUES ($1, $2)", Args: []any{stateRestoring, "begun " + g.now.UTC().Format(time.RFC3339)}},
		), nil
	})
}

// restoreRows inserts rows. It may run again after it was committed.
func (s *Store) restoreRows(ctx context.Context, t archive.Table, rows [][]any) error {
	types := map[archive.Type]Type{archive.Text: Text, archive.Int: Int, archive.Bytes: Bytes, archive.Bool: Bool}
	columns := make([]Column, len(t.Columns))
	var names, values []string
	for i, c := range t.Columns {
		columns[i] = Column{c.Name, types[c.Type]}
		names = append(names, c.Name)
		values = append(values, "r."+c.Name)
	}
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		marked := false
		if err := tx.Run(ctx, Statement{
			SQL: "SELECT name FROM state WHERE name = $1", Args: []any{stateRestoring},
			Scan: func(from Row) error {
				marked = true
				return from.Scan(new(string))
			},
		}); err != nil {
			return nil, err
		}
		if !marked {
			return nil, tko.Errorf(tko.ErrConflict, "another restore into the store has ended meanwhile")
		}
		return []Statement{{
			SQL: "INSERT INTO " + t.Name + " (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") + " FROM {rows} WHERE true ON CONFLICT DO NOTHING", Columns: columns, Rows: rows,
		}}, nil
	})
}

// The queues that are held as a whole after a restore: their workers change records,
// run plugins, or delete what their sources no longer name.
var heldQueues = []string{tko.QueuePrepare, tko.QueueGitOps}

// restoreRecord is the audit record of a restore: it names the head of the log that
// the backup has, because another log may continue from there.
func restoreRecord(summary archive.Summary, o Restore) audit.Record {
	m := summary.Manifest
	detail := fmt.Sprintf("from the backup of %s with the SHA-256 %s, at position %d; the audit log continues after record %d with the hash %x",
		m.Created.UTC().Format(time.RFC3339), summary.Digest, m.Position, m.Audited, m.Chain)
	if o.WithoutAccess {
		detail += "; without its rules of access"
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
		access := m.Access
		if o.WithoutAccess {
			access = 0
		}
		statements := slices.Concat(audits, []Statement{
			g.saveHead(),
			{SQL: "UPDATE head SET gone = $1, collected = $2, access = $3, rollouts = 1 WHERE one = 1", Args: []any{position, m.Collected + 1, access}},
			{SQL: "UPDATE collector SET holder = '', until = 0 WHERE one = 1"},
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
		return append(
			statements,
			Statement{SQL: "DELETE FROM state WHERE name = $1", Args: []any{stateRestoring}},
			Statement{
				SQL:  "INSERT INTO state (name, value) VALUES ($1, $2)",
				Args: []any{stateRestored, fmt.Sprintf("%s from the backup of %s, %s", g.now.UTC().Format(time.RFC3339), m.Created.UTC().Format(time.RFC3339), summary.Digest)},
			},
		), nil
	})
}
