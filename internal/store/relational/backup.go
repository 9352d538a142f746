package relational

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/store/selection"
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
	// absent returns the values of columns that archives of earlier versions lack, from
	// those of the others; a column that isn't in it gets the default of the schema.
	absent map[string]func(column func(name string) any) (any, error)
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
// (rights of clients of the old store), the times of wakes, holds, the numbers of entities and
// the state of the store itself. The head is in the manifest.
func savedTables() []savedTable {
	entity := saved("entity", largeChunk, "id", inBackups(stateOfRecords, entityOnly)...)
	entity.kinds = true
	flight := saved("flight", largeChunk, "deployment", textual("deployment"), textual("rollout"), textual("site"), textual("doc"), flag("apart"))
	flight.absent = map[string]func(func(string) any) (any, error){"apart": flightApart}
	return []savedTable{
		saved("blob", smallChunk, "digest", content("digest"), number("encoding"), number("size"), content("data")),
		saved("metaset", largeChunk, "id", number("id"), content("digest"), textual("doc")),
		entity,
		saved("pair", largeChunk, "id", number("id"), textual("kind"), textual("key"), textual("value"), textual("start"), content("hash")),
		saved("entity_pair", largeChunk, "pair id", number("pair"), textual("id")),
		saved("metaset_pair", largeChunk, "pair metaset", number("pair"), number("metaset")),
		saved("change", largeChunk, "position", inBackups(stateOfRecords, changeOnly)...),
		saved(
			"work", largeChunk, "queue key",
			textual("queue"), textual("key"), number("generation"), number("due"), number("attempt"), textual("last_error"), number("lease_until"), textual("claim"), number("claimed"),
			number("claimed_generation"), number("since"), textual("cause"), number("gathering"),
		),
		saved("source", smallChunk, "name", textual("name"), number("version"), number("updated"), content("status"), content("state"), textual("approved")),
		saved("target_state", smallChunk, "site name", textual("site"), textual("name"), number("version"), number("updated"), content("state")),
		saved("rollout", largeChunk, "id", textual("id"), flag("active"), textual("undoes"), number("started"), textual("doc")),
		saved("rollout_plan", smallChunk, "rollout plan", textual("rollout"), number("plan"), textual("doc")),
		saved(
			"rollout_row", largeChunk, "rollout plan deployment",
			textual("rollout"), number("plan"), textual("deployment"), textual("uid"), number("revision"), number("kind"), number("wave"), number("rank"), optional(content("before")),
			optional(content("after")), number("grp"), textual("parent"), textual("site"), textual("progress"), number("since"), number("evaluated"), number("credit"), flag("counted"),
			flag("broken"), textual("reason"), number("applied"), number("chain"), number("target"), textual("doc"), number("version"),
		),
		saved("rollout_pin", largeChunk, "rollout kind id revision", textual("rollout"), textual("kind"), textual("id"), number("revision")),
		saved("rollout_evidence", largeChunk, "rollout n", textual("rollout"), number("n"), textual("doc")),
		flight,
		saved("access_rule", largeChunk, "kind id", textual("kind"), textual("id"), textual("doc")),
		saved("audit", largeChunk, "seq", number("seq"), number("at"), textual("doc"), content("hash")),
		saved("audit_sink", largeChunk, "name", textual("name"), number("seq")),
		saved("notifier", largeChunk, "one", number("one"), textual("holder"), number("until")),
		saved("subscription", smallChunk, "name", textual("name"), textual("doc")),
		saved("sealing_key", largeChunk, "id", number("id"), number("version"), content("wrapped")),
		saved("audit_base", largeChunk, "one", number("one"), number("seq"), content("hash")),
		saved("collector", largeChunk, "one", number("one"), textual("holder"), number("until"), number("position"), number("revisions"), number("loose"), number("past"), number("past_at")),
		saved("longer", largeChunk, "id", textual("id"), textual("policy"), number("changes")),
		saved("reach", largeChunk, "cause what", textual("cause"), textual("what"), number("n"), number("consent"), number("since"), number("updated")),
		saved("reach_part", largeChunk, "cause what part", textual("cause"), textual("what"), number("part"), number("n"), number("consent"), number("updated")),
		saved("reach_site", largeChunk, "cause site", textual("cause"), textual("site"), number("updated")),
	}
}

// flightApart returns the column apart of a deployment in flight, from its document.
// Without it, sites that the rollout keeps apart would not be held back.
func flightApart(column func(name string) any) (any, error) {
	doc, _ := column("doc").(string)
	var e execute.Entry
	err := json.Unmarshal([]byte(doc), &e)
	return len(e.Apart) > 0, fault("decode a deployment in flight", err)
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
	var f tko.Fence
	if err := tx.Run(ctx, readFence(&f)); err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	m.Fence = f.Epoch
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
		var b selection.Builder
		sql := "SELECT " + strings.Join(names, ", ") + " FROM " + t.Name + " WHERE 1 = 1"
		if kind != "" {
			sql += " AND kind = " + b.Arg(string(kind))
		}
		if last != nil {
			values := make([]string, len(last))
			for i, v := range last {
				values[i] = b.Arg(v)
			}
			sql += " AND (" + strings.Join(t.key, ", ") + ") > (" + strings.Join(values, ", ") + ")"
		}
		sql += " ORDER BY " + strings.Join(t.key, ", ") + " LIMIT " + strconv.Itoa(t.chunk)
		n := 0
		err := tx.Run(ctx, Statement{SQL: sql, Args: b.Args, Scan: func(from Row) error {
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
