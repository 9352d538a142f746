package relational

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Get returns the records of keys, in their order.
func (s *Store) Get(ctx context.Context, fields catalog.Fields, keys ...catalog.Key) ([]catalog.Record, error) {
	fields.Deployments = fields.Deployments && slices.ContainsFunc(keys, func(key catalog.Key) bool { return hasDeployments(key.Kind) })
	if len(keys) == 1 && !fields.Deployments {
		r, err := s.getOne(ctx, fields, keys[0])
		if err != nil {
			return nil, err
		}
		return []catalog.Record{r}, nil
	}
	wanted := map[catalog.Key]bool{}
	var distinct []catalog.Key
	for _, key := range keys {
		if wanted[key] || checkTexts("kind", string(key.Kind), "ID", key.ID) != nil {
			continue // a key that can't be stored doesn't exist
		}
		wanted[key] = true
		distinct = append(distinct, key)
	}
	var rows []row
	statement := rowsOf(distinct, func(r row) { rows = append(rows, r) })
	err := s.view(ctx, fields, func(tx runner) error {
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
	found := make(map[catalog.Key]*row, len(rows))
	for i := range rows {
		found[rows[i].Key] = &rows[i]
	}
	records := make([]catalog.Record, len(keys))
	taken := make(map[catalog.Key]bool, len(keys))
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

type runner func(ctx context.Context, statements ...Statement) error

// view runs fn, which reads. It begins a transaction only if several statements must
// see one snapshot. Packages and metadata never change.
func (s *Store) view(ctx context.Context, fields catalog.Fields, fn func(runner) error) error {
	if fields.Deployments {
		return s.read(ctx, func(tx Tx) error { return fn(tx.Run) })
	}
	return fn(s.run)
}

// fill sets the parts of rows that are in other tables.
func (s *Store) fill(ctx context.Context, fields catalog.Fields, rows []row) error {
	if err := s.fillMetadata(ctx, s.run, rows); err != nil {
		return err
	}
	if !fields.Package {
		return nil
	}
	records := make([]*catalog.Record, len(rows))
	for i := range rows {
		records[i] = &rows[i].Record
	}
	return s.fillPackages(ctx, s.run, records)
}

// fillDeployments sets the IDs of the deployments of templates and sites.
func (s *Store) fillDeployments(ctx context.Context, run runner, fields catalog.Fields, rows []row) error {
	if !fields.Deployments {
		return nil
	}
	owners := map[string]*row{}
	var statements []Statement
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite} {
		column := string(kind)
		b := &builder{dialect: &s.dialect}
		statement := Statement{
			SQL: "SELECT e." + column + ", e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = 'deployment' AND e." + column + " = r.i " +
				"AND e." + column + " <> '' AND " + within("e", tko.KindDeployment, fields.Scope.Of(tko.KindDeployment))(b),
			Args:    b.args,
			Columns: []Column{{"i", Text}},
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
				statement.Rows = append(statement.Rows, []any{rows[i].ID})
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
func (s *Store) Derivation(ctx context.Context, digest catalog.Digest) ([]byte, error) {
	r := catalog.Record{Digest: digest}
	err := s.fillPackages(ctx, s.run, []*catalog.Record{&r})
	if err == nil && r.Package == nil {
		err = fmt.Errorf("derivation %x: %w", digest, tko.ErrNotFound)
	}
	return r.Package, err
}

// Revision returns a record at a revision, with its package.
func (s *Store) Revision(ctx context.Context, key catalog.Key, revision int64) (catalog.Record, error) {
	none := fmt.Errorf("%s %q at revision %d: %w", key.Kind, key.ID, revision, tko.ErrNotFound)
	if checkTexts("kind", string(key.Kind), "ID", key.ID) != nil {
		return catalog.Record{}, none
	}
	statement := Statement{
		SQL:  "SELECT " + names(stateColumns, "c.") + ", c.steps FROM change c WHERE c.kind = $1 AND c.id = $2 AND c.revision = $3 AND c.op = 'written'",
		Args: []any{string(key.Kind), key.ID, revision},
	}
	for again := false; ; again = true {
		var r row
		var steps text
		statement.Scan = func(from Row) error { return r.scan(from, &steps) }
		if err := s.run(ctx, statement); err != nil {
			return catalog.Record{}, fault("read a revision", err)
		}
		if r.Revision == 0 {
			return catalog.Record{}, none
		}
		var err error
		if r.Steps, err = parseSteps(string(steps)); err != nil {
			return catalog.Record{}, fmt.Errorf("steps of %s %q at revision %d: %w", key.Kind, key.ID, revision, err)
		}
		err = s.complete(ctx, &r)
		if err == nil {
			return r.Record, nil
		}
		if again { // the first time, it may have been collected between the two statements
			return catalog.Record{}, err
		}
	}
}
