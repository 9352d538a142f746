package relational

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

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
	last string // the ID of the last row that was taken
	gone bool   // is whoever took the rows

	// Of whoever reads, which is not always who gives the rows to the caller.
	size   int    // of the next rows
	unread int    // of the limit; negative: none
	skip   int    // how many of what matches are to be left out
	end    string // the ID of the last row that was read
}

// A chunk is rows that were read together, or the reason why there are none.
type chunk struct {
	rows []row
	err  error
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
	l.size, l.unread, l.end = firstChunk, l.left, l.query.After
	pages, err := l.start(ctx)
	if err != nil || l.walk == nil {
		return err
	}
	answered, err := l.answer(caller, ctx)
	if err == nil && pages != nil && !l.gone && l.left == 0 && l.began {
		pages.add(mark{int(l.query.Offset) + answered, l.last})
		l.store.offsets.put(pages)
	}
	return err
}

// answer gives the caller all rows, and answers how many it took. Whoever took
// the first of them wants more: from then on, rows are read while those before
// them are taken. Packages may be too large to have more of them than needed.
func (l *lister) answer(caller, ctx context.Context) (taken int, err error) {
	for more := true; more && !l.gone && l.left != 0; {
		if err := caller.Err(); err != nil {
			return taken, err
		}
		if taken > 0 && !l.query.Fields.Package {
			ahead, err := l.answerAhead(caller, ctx)
			return taken + ahead, err
		}
		l.turn.await()
		var c chunk
		if c, more = l.next(ctx); c.err != nil {
			return taken, c.err
		}
		taken += l.offer(c.rows)
	}
	return taken, nil
}

// answerAhead gives the caller the rest of the rows, and has the next ones read
// meanwhile: those it takes, those that wait for it, and no more.
func (l *lister) answerAhead(caller, ctx context.Context) (taken int, err error) {
	chunks, over := make(chan chunk), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		for more := true; more; {
			c := chunk{err: caller.Err()}
			if c.err == nil {
				c, more = l.next(ctx)
			}
			more = more && c.err == nil
			select {
			case chunks <- c:
			case <-over:
				return
			}
		}
	})
	defer reading.Wait()
	defer close(over)
	for {
		l.turn.await()
		c, ok := <-chunks
		if !ok || c.err != nil {
			return taken, c.err
		}
		if taken += l.offer(c.rows); l.gone || l.left == 0 {
			return taken, nil
		}
	}
}

// next reads the next rows, and says whether there may be more.
func (l *lister) next(ctx context.Context) (c chunk, more bool) {
	size, most := l.size, fullChunk
	if l.query.Fields.Package {
		most = packageChunk
	}
	l.size = min(4*size, most)
	if l.unread > 0 && l.walk.rest == nil {
		size = min(size, l.unread)
	}
	c.rows, more, c.err = l.walk.rows(ctx, size)
	if c.err == nil {
		c.rows, c.err = l.fill(ctx, c.rows)
	}
	if errors.Is(c.err, errLost) {
		c.err = lostAt(l.end)
	}
	if c.err != nil {
		return chunk{err: c.err}, false
	}
	if l.unread > 0 {
		c.rows = c.rows[:min(len(c.rows), l.unread)]
		l.unread -= len(c.rows)
		more = more && l.unread > 0
	}
	if n := len(c.rows); n > 0 {
		l.end = c.rows[n-1].ID
	}
	return c, more
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
		rows = slices.DeleteFunc(rows, func(r row) bool { return !l.walk.matches(r.Metadata) })
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
func (p *plan) matches(metadata *catalog.Metadata) bool {
	for _, f := range p.rest {
		has := metadata.Effective
		if f.label {
			has = metadata.Labels
		}
		if value, ok := has[f.key]; !ok || !f.match(value) {
			return false
		}
	}
	return true
}
