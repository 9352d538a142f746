package relational

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The number of rows that are read at once: few at first, so that the first
// one comes soon.
const (
	firstChunk   = 32
	fullChunk    = 1000
	packageChunk = 100 // with packages, which may be large
)

// List answers what matches, sorted by ID.
func (s *Store) List(ctx context.Context, query catalog.Query) iter.Seq2[catalog.Record, error] {
	return func(yield func(catalog.Record, error) bool) {
		err := checkQuery(&query)
		if err == nil && query.Limit == 0 {
			err = ctx.Err()
		} else if err == nil {
			err = s.stream(ctx, yield, func(yield func(catalog.Record, error) bool) error {
				l := &lister{store: s, query: query, yield: yield}
				return l.list(ctx)
			})
		}
		if err != nil {
			yield(catalog.Record{}, fault("list", err))
		}
	}
}

func checkQuery(q *catalog.Query) error {
	texts := []string{"kind", string(q.Kind), "parent", q.Parent, "ID to start after", q.After}
	for _, p := range slices.Concat(q.IDs, q.Templates, q.Sites) {
		texts = append(texts, "pattern", p.String())
	}
	for _, m := range []map[string]tko.Pattern{q.Metadata, q.TemplateMetadata, q.SiteMetadata} {
		for key, p := range m {
			texts = append(texts, "metadata key", key, "pattern", p.String())
		}
	}
	return checkTexts(texts...)
}

// A lister answers a query.
type lister struct {
	store *Store
	query catalog.Query
	yield func(catalog.Record, error) bool
	began bool // something was answered

	turn *turn
	walk *walk
	left int    // of the limit; negative: none
	skip int    // how many of what matches are to be left out
	last string // the ID of the last row that was taken
	gone bool   // is whoever took the rows
}

func (l *lister) list(caller context.Context) (err error) {
	l.turn, err = l.store.listTurn(caller)
	if err != nil {
		return err
	}
	defer l.turn.end()
	// Most callers go before the end: a query that is cut off costs its
	// connection, and what was prepared on it. So the caller's going is noticed
	// between queries, which are short.
	ctx := context.WithoutCancel(caller)
	p := newPlan(l.store, &l.query, l.turn.run)
	if err := p.prepare(ctx); err != nil || p.nothing {
		return err
	}
	l.walk, l.left, l.skip = newWalk(p), l.query.Limit, int(l.query.Offset)
	pages, err := l.start(ctx)
	if err != nil || l.walk == nil {
		return err
	}
	size, most, answered := firstChunk, fullChunk, 0
	if l.query.Fields.Package {
		most = packageChunk
	}
	for more := true; more && !l.gone && l.left != 0; size = min(4*size, most) {
		if err := caller.Err(); err != nil {
			return err
		}
		if l.left > 0 && p.rest == nil {
			size = min(size, l.left)
		}
		var rows []row
		if rows, more, err = l.walk.rows(ctx, size); err == nil {
			rows, err = l.fill(ctx, rows)
		}
		if errors.Is(err, errLost) {
			err = lostAt(l.walk.after.id)
		}
		if err != nil {
			return err
		}
		answered += l.offer(rows)
	}
	if pages != nil && !l.gone && l.left == 0 && l.began {
		pages.add(mark{int(l.query.Offset) + answered, l.last})
		l.store.offsets.put(pages)
	}
	return nil
}

// offer gives rows to the caller, and answers how many it took.
func (l *lister) offer(rows []row) (taken int) {
	l.turn.offer()
	for i := range rows {
		l.began = true
		if l.gone = !l.yield(rows[i].Record, nil); l.gone {
			return taken
		}
		l.turn.took()
		l.last = rows[i].ID
		taken++
		if l.left--; l.left == 0 {
			return taken
		}
	}
	return taken
}

// fill gives rows what isn't in their table, and leaves out those that don't
// match, and those to be skipped.
func (l *lister) fill(ctx context.Context, rows []row) ([]row, error) {
	if len(rows) == 0 {
		return rows, nil
	}
	s, fields := l.store, l.query.Fields
	if err := s.fillMetadata(ctx, l.turn.run, rows); err != nil {
		return nil, err
	}
	if l.walk.rest != nil {
		all := len(rows)
		rows = slices.DeleteFunc(rows, func(r row) bool { return !l.walk.matches(r.Metadata.Effective) })
		l.walk.matched -= all - len(rows)
		skipped := min(l.skip, len(rows))
		l.skip -= skipped
		rows = rows[skipped:]
	}
	if err := s.fillDeployments(ctx, l.turn.run, fields, rows); err != nil {
		return nil, err
	}
	if fields.Counts {
		if err := l.fillCounts(ctx, rows); err != nil {
			return nil, err
		}
	}
	if !fields.Package {
		return rows, nil
	}
	records := make([]*catalog.Record, len(rows))
	for i := range rows {
		records[i] = &rows[i].Record
	}
	return rows, s.fillPackages(ctx, l.turn.run, records)
}

// fillCounts gives templates and sites the numbers of their deployments.
func (l *lister) fillCounts(ctx context.Context, rows []row) error {
	if kind := l.query.Kind; kind != tko.KindTemplate && kind != tko.KindSite {
		return nil
	}
	name := string(l.query.Kind)
	column := "e." + name
	counts := make(map[string]int, len(rows))
	statement := Statement{
		SQL: "SELECT r.i, (SELECT count(*) FROM entity e" + l.store.dialect.by("entity_by_"+name) +
			" WHERE e.kind = 'deployment' AND " + column + " <> '' AND " + column + " = r.i) FROM {rows}",
		Columns: []Column{{"i", Text}},
		Scan: func(from Row) error {
			var id string
			var count int
			err := from.Scan(&id, &count)
			counts[id] = count
			return err
		},
	}
	for i := range rows {
		statement.Rows = append(statement.Rows, []any{rows[i].ID})
	}
	if err := l.turn.run(ctx, statement); err != nil {
		return err
	}
	for i := range rows {
		rows[i].Count = counts[rows[i].ID]
	}
	return nil
}

// matches says whether metadata fulfils what the database didn't see to.
func (p *plan) matches(effective map[string]string) bool {
	for _, f := range p.rest {
		if value, ok := effective[f.key]; !ok || !f.match(value) {
			return false
		}
	}
	return true
}
