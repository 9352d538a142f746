package relational

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/store/backup"
	"github.com/tko-orchestrator/tko/internal/store/selection"
)

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
	for _, t := range backup.Tables() {
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

func (s *Store) saveTable(ctx context.Context, tx Tx, out *archive.Writer, t *backup.Table) error {
	if err := out.Table(t.Table); err != nil {
		return err
	}
	if !t.Kinds {
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
func (s *Store) saveRows(ctx context.Context, tx Tx, out *archive.Writer, t *backup.Table, kind tko.Kind) error {
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
			sql += " AND (" + strings.Join(t.Key, ", ") + ") > (" + strings.Join(values, ", ") + ")"
		}
		sql += " ORDER BY " + strings.Join(t.Key, ", ") + " LIMIT " + strconv.Itoa(t.Chunk)
		n := 0
		err := tx.Run(ctx, Statement{SQL: sql, Args: b.Args, Scan: func(from Row) error {
			row, err := scanColumns(from, t.Columns)
			if err != nil {
				return err
			}
			last = last[:0]
			for _, name := range t.Key {
				last = append(last, row[positions[name]])
			}
			n++
			return out.Row(row)
		}})
		if err != nil || n < t.Chunk {
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
