package relational

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/selection"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Get returns the records of keys, in their order.
func (s *Store) Get(ctx context.Context, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	fields.Deployments = fields.Deployments && slices.ContainsFunc(keys, func(key record.Key) bool { return hasDeployments(key.Kind) })
	if len(keys) == 1 && !fields.Deployments {
		r, err := s.getOne(ctx, fields, keys[0])
		if err != nil {
			return nil, err
		}
		return []record.Record{r}, nil
	}
	wanted := map[record.Key]bool{}
	var distinct []record.Key
	for _, key := range keys {
		if wanted[key] || decide.CheckTexts("kind", string(key.Kind), "ID", key.ID) != nil {
			continue // a key that can't be stored doesn't exist
		}
		wanted[key] = true
		distinct = append(distinct, key)
	}
	var rows []row
	statement := rowsOf(distinct, func(r row) { rows = append(rows, r) })
	err := s.view(ctx, fields, func(tx sqldb.Runner) error {
		rows = nil
		if statement.Idle() {
			return nil
		}
		if err := tx(ctx, statement); err != nil {
			return err
		}
		return s.fillDeployments(ctx, tx, fields, rows)
	})
	if err != nil {
		return nil, fault("read", err)
	}
	if err := s.fill(ctx, fields, rows); err != nil {
		return nil, err
	}
	found := make(map[record.Key]*row, len(rows))
	for i := range rows {
		found[rows[i].Key] = &rows[i]
	}
	records := make([]record.Record, len(keys))
	taken := make(map[record.Key]bool, len(keys))
	for i, key := range keys {
		r := found[key]
		switch {
		case r == nil:
			records[i].Key = key
		case taken[key]:
			records[i] = cloneRecord(r.Record)
		default:
			records[i], taken[key] = r.Record, true
		}
	}
	return records, nil
}

// view runs fn, which reads. It begins a transaction only if several statements must
// see one snapshot. Packages and metadata never change.
func (s *Store) view(ctx context.Context, fields record.Fields, fn func(sqldb.Runner) error) error {
	if fields.Deployments {
		return s.read(ctx, func(tx Tx) error { return fn(tx.Run) })
	}
	return fn(s.run)
}

// fill sets the parts of rows that are in other tables.
func (s *Store) fill(ctx context.Context, fields record.Fields, rows []row) error {
	if err := s.fillMetadata(ctx, s.run, rows); err != nil {
		return err
	}
	if !fields.Package {
		return nil
	}
	records := make([]*record.Record, len(rows))
	for i := range rows {
		records[i] = &rows[i].Record
	}
	return s.fillPackages(ctx, s.run, records)
}

// fillDeployments sets the IDs of the deployments of templates and sites.
func (s *Store) fillDeployments(ctx context.Context, run sqldb.Runner, fields record.Fields, rows []row) error {
	if !fields.Deployments {
		return nil
	}
	owners := map[string]*row{}
	var statements []Statement
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite} {
		column := string(kind)
		b := &selection.Builder{Dialect: &s.dialect}
		statement := Statement{
			SQL: "SELECT e." + column + ", e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e." + column + " = r.i " +
				"AND e." + column + " <> '' AND " + selection.Within("e", tko.KindDeployment, fields.Scope.Of(tko.KindDeployment))(b),
			Args:    b.Args,
			Columns: keyColumns, // with a constant kind, PostgreSQL may read all deployments, as long as it has no statistics
			Scan: func(from Row) error {
				var owner, id string
				err := from.Scan(&owner, &id)
				if r := owners[column+" "+owner]; r != nil {
					r.Deployments = append(r.Deployments, id)
				}
				return err
			},
		}
		for i := range rows {
			if rows[i].Kind == kind {
				owners[column+" "+rows[i].ID] = &rows[i]
				statement.Rows = append(statement.Rows, []any{string(tko.KindDeployment), rows[i].ID})
			}
		}
		if !statement.Idle() {
			statements = append(statements, statement)
		}
	}
	if len(statements) == 0 {
		return nil
	}
	if err := run(ctx, statements...); err != nil {
		return err
	}
	for _, r := range owners {
		slices.Sort(r.Deployments) // the database may have read all deployments to sort them
	}
	return nil
}

// Derivation returns the content of a derivation.
func (s *Store) Derivation(ctx context.Context, digest record.Digest) ([]byte, error) {
	r := record.Record{Digest: digest}
	err := s.fillPackages(ctx, s.run, []*record.Record{&r})
	if err == nil && r.Package == nil {
		err = fmt.Errorf("derivation %x: %w", digest, tko.ErrNotFound)
	}
	return r.Package, err
}

// Revision returns a record at a revision, with its package.
func (s *Store) Revision(ctx context.Context, key record.Key, revision int64) (record.Record, error) {
	records, err := s.Revisions(ctx, record.Fields{Package: true}, record.AtRevision{Key: key, Revision: revision})
	if err == nil && records[0].Revision == 0 {
		err = fmt.Errorf("%s %q at revision %d: %w", key.Kind, key.ID, revision, tko.ErrNotFound)
	}
	if err != nil {
		return record.Record{}, err
	}
	return records[0], nil
}

var revisionColumns = []Column{Text.As("k"), Text.As("i"), Int.As("v")}

// Revisions returns records at revisions.
func (s *Store) Revisions(ctx context.Context, fields record.Fields, wanted ...record.AtRevision) ([]record.Record, error) {
	statement := Statement{
		SQL: "SELECT " + sqldb.Names(stateColumns, "c.") + ", c.steps FROM {rows} CROSS JOIN change c " +
			"WHERE c.kind = r.k AND c.id = r.i AND c.revision = r.v AND c.op = 'written'",
		Columns: revisionColumns,
	}
	asked := make(map[record.AtRevision]bool, len(wanted))
	for _, w := range wanted {
		if !asked[w] && decide.CheckTexts("kind", string(w.Kind), "ID", w.ID) == nil {
			asked[w] = true
			statement.Rows = append(statement.Rows, []any{string(w.Kind), w.ID, w.Revision})
		}
	}
	for again := false; ; again = true {
		found, err := s.revisions(ctx, fields, statement)
		if err != nil && !again && ctx.Err() == nil { // they may have been collected between the statements
			continue
		}
		if err != nil {
			return nil, err
		}
		out, taken := make([]record.Record, len(wanted)), map[record.AtRevision]bool{}
		for i, w := range wanted {
			out[i].Key = w.Key
			r, ok := found[w]
			switch {
			case !ok:
			case taken[w]:
				out[i] = cloneRecord(r.Record)
			default:
				out[i], taken[w] = r.Record, true
			}
		}
		return out, nil
	}
}

func (s *Store) revisions(ctx context.Context, fields record.Fields, statement Statement) (map[record.AtRevision]*row, error) {
	var rows []row
	var steps []text
	statement.Scan = func(from Row) error {
		var r row
		var of text
		err := r.scan(from, &of)
		rows, steps = append(rows, r), append(steps, of)
		return err
	}
	if !statement.Idle() {
		if err := s.run(ctx, statement); err != nil {
			return nil, fault("read revisions", err)
		}
	}
	found := make(map[record.AtRevision]*row, len(rows))
	for i := range rows {
		r := &rows[i]
		var err error
		if r.Steps, err = form.ParseSteps(string(steps[i])); err != nil {
			return nil, fmt.Errorf("steps of %s %q at revision %d: %w", r.Kind, r.ID, r.Revision, err)
		}
		found[record.AtRevision{Key: r.Key, Revision: r.Revision}] = r
	}
	return found, s.fill(ctx, record.Fields{Package: fields.Package}, rows)
}
