package relational

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/selection"
)

// The number of rows that are read at once: few at first, so that the first row
// arrives soon.
const (
	firstChunk   = 32
	fullChunk    = 1000
	packageChunk = 100 // with packages, which may be large
)

// List returns the records that match query, ordered by ID.
func (s *Store) List(ctx context.Context, query record.Query) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		err := checkQuery(&query)
		switch {
		case err != nil:
		case query.Limit == 0:
			err = ctx.Err()
		case query.AsOf != 0:
			err = s.listAt(ctx, query, yield)
		default:
			err = s.stream(ctx, yield, func(yield func(record.Record, error) bool) error {
				query.Fields.Scope = query.Scope
				l := &lister{store: s, query: query, yield: yield}
				return l.list(ctx)
			})
		}
		if err != nil {
			yield(record.Record{}, fault("list", err))
		}
	}
}

func checkQuery(q *record.Query) error {
	texts := []string{"kind", string(q.Kind), "parent", q.Parent, "origin", q.Origin, "ID to start after", q.After}
	for _, p := range slices.Concat(q.IDs, q.Templates, q.Sites) {
		texts = append(texts, "pattern", p.String())
	}
	for _, m := range []map[string]tko.Pattern{q.Metadata, q.Labels, q.TemplateMetadata, q.SiteMetadata} {
		for key, p := range m {
			texts = append(texts, "metadata key", key, "pattern", p.String())
		}
	}
	return decide.CheckTexts(texts...)
}

// A lister executes one query.
type lister struct {
	store   *Store
	query   record.Query
	yield   func(record.Record, error) bool
	yielded bool // a row was given to the caller

	lease     *snapshotLease
	cursor    *selection.Cursor
	remaining int    // rows of the limit that the caller has not read; negative: no limit
	lastTaken string // ID of the last row that the caller read
	stopped   bool   // the caller stopped reading

	// Used by the goroutine that reads rows, which may not be the caller's.
	size     int    // number of rows to read next
	unread   int    // rows of the limit that were not read from the database; negative: no limit
	skip     int    // number of matches to leave out
	lastRead string // ID of the last row read from the database
}

// A chunk is rows that were read together, or an error.
type chunk struct {
	rows []row
	err  error
}

func (l *lister) list(caller context.Context) (err error) {
	l.lease, err = l.store.leaseSnapshot(caller)
	if err != nil {
		return err
	}
	defer l.lease.end()
	// Most callers stop before the end. Cancelling a statement would cost the
	// connection and its prepared statements. So cancellation is checked between
	// statements, which are short.
	ctx := context.WithoutCancel(caller)
	p := selection.New(&l.store.dialect, &l.query, l.lease.run)
	if err := p.Prepare(ctx); err != nil || p.Empty() {
		return err
	}
	l.cursor, l.remaining, l.skip = p.Cursor(), l.query.Limit, int(l.query.Offset)
	l.size, l.unread, l.lastRead = firstChunk, l.remaining, l.query.After
	marks, err := l.seekOffset(ctx)
	if err != nil || l.cursor == nil {
		return err
	}
	taken, err := l.yieldRows(caller, ctx)
	if err == nil && marks != nil && !l.stopped && l.remaining == 0 && l.yielded {
		marks.add(mark{int(l.query.Offset) + taken, l.lastTaken})
		l.store.offsetCache.put(marks)
	}
	return err
}

// yieldRows gives the caller all rows, and returns how many it read. A caller that
// reads the first chunk will read more: from then on, rows are read ahead.
// Packages may be too large to read ahead.
func (l *lister) yieldRows(caller, ctx context.Context) (taken int, err error) {
	for more := true; more && !l.stopped && l.remaining != 0; {
		if err := caller.Err(); err != nil {
			return taken, err
		}
		if taken > 0 && !l.query.Fields.Package {
			ahead, err := l.yieldWhileReading(caller, ctx)
			return taken + ahead, err
		}
		l.lease.clearOffer()
		var c chunk
		c, more = l.readChunk(ctx)
		if c.err != nil {
			return taken, c.err
		}
		taken += l.yieldChunk(c.rows)
	}
	return taken, nil
}

// yieldWhileReading gives the caller the remaining rows while the next chunk is
// read. At most two chunks are in memory.
func (l *lister) yieldWhileReading(caller, ctx context.Context) (taken int, err error) {
	chunks, over := make(chan chunk), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		for more := true; more; {
			c := chunk{err: caller.Err()}
			if c.err == nil {
				c, more = l.readChunk(ctx)
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
		l.lease.clearOffer()
		c, ok := <-chunks
		if !ok || c.err != nil {
			return taken, c.err
		}
		taken += l.yieldChunk(c.rows)
		if l.stopped || l.remaining == 0 {
			return taken, nil
		}
	}
}

// readChunk reads the next rows, and reports whether there may be more.
func (l *lister) readChunk(ctx context.Context) (c chunk, more bool) {
	size, most := l.size, fullChunk
	if l.query.Fields.Package {
		most = packageChunk
	}
	l.size = min(4*size, most)
	if l.unread > 0 && !l.cursor.HasResidual() {
		size = min(size, l.unread)
	}
	c.rows = make([]row, 0, size)
	scanner := newEntityScanner()
	more, c.err = l.cursor.Rows(ctx, size, selectedEntity, func(from Row) (string, error) {
		r, err := scanner.scan(from)
		c.rows = append(c.rows, r)
		return r.ID, err
	})
	if c.err == nil {
		c.rows, c.err = l.fill(ctx, c.rows)
	}
	if errors.Is(c.err, errLeaseLost) {
		c.err = errListEnded(l.lastRead)
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
		l.lastRead = c.rows[n-1].ID
	}
	return c, more
}

// yieldChunk gives rows to the caller, and returns how many it read.
func (l *lister) yieldChunk(rows []row) (taken int) {
	l.lease.offer()
	for i := range rows {
		l.yielded = true
		l.stopped = !l.yield(rows[i].Record, nil)
		if l.stopped {
			return taken
		}
		l.lease.rowTaken()
		l.lastTaken = rows[i].ID
		taken++
		l.remaining--
		if l.remaining == 0 {
			return taken
		}
	}
	return taken
}

// fill sets the parts of rows that are in other tables. It removes rows that don't
// match the residual filters, and those that the offset skips.
func (l *lister) fill(ctx context.Context, rows []row) ([]row, error) {
	if len(rows) == 0 {
		return rows, nil
	}
	s, fields := l.store, l.query.Fields
	if err := s.fillMetadata(ctx, l.lease.run, rows); err != nil {
		return nil, err
	}
	if l.cursor.HasResidual() {
		all := len(rows)
		rows = slices.DeleteFunc(rows, func(r row) bool { return !l.cursor.Matches(&r.Record) })
		l.cursor.Reject(all - len(rows))
		skipped := min(l.skip, len(rows))
		l.skip -= skipped
		rows = rows[skipped:]
	}
	if err := l.fillDeployments(ctx, rows); err != nil {
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
	records := make([]*record.Record, len(rows))
	for i := range rows {
		records[i] = &rows[i].Record
	}
	return rows, s.fillPackages(ctx, l.lease.run, records)
}

// fillDeployments sets the IDs of the deployments of templates and sites. If rows
// are all records of a range of IDs, their deployments are a range of an index.
func (l *lister) fillDeployments(ctx context.Context, rows []row) error {
	kind := l.query.Kind
	if !l.cursor.Unfiltered() || !l.query.Fields.Deployments || !hasDeployments(kind) || len(rows) < minRangeRows {
		return l.store.fillDeployments(ctx, l.lease.run, l.query.Fields, rows)
	}
	column := "e." + string(kind)
	b := &selection.Builder{Dialect: &l.store.dialect}
	sql := "SELECT " + column + ", e.id FROM entity e" + l.store.dialect.ByIndex("entity_by_"+string(kind)) +
		" WHERE e.kind = 'deployment' AND " + column + " <> '' AND " + column + " >= " + b.Arg(rows[0].ID) + " AND " + column + " <= " + b.Arg(rows[len(rows)-1].ID) +
		" AND " + selection.Within("e", tko.KindDeployment, l.query.Fields.Scope.Of(tko.KindDeployment))(b) + " ORDER BY " + column + ", e.id"
	next := 0
	return l.lease.run(ctx, Statement{
		SQL:  sql,
		Args: b.Args,
		Scan: func(from Row) error {
			var owner, id string
			err := from.Scan(&owner, &id)
			for next < len(rows) && rows[next].ID < owner {
				next++
			}
			if next < len(rows) && rows[next].ID == owner {
				rows[next].Deployments = append(rows[next].Deployments, id)
			}
			return err
		},
	})
}

// minRangeRows is the number of rows below which a range isn't worth a plan of its
// own.
const minRangeRows = 8

// fillCounts sets the numbers of deployments of templates and sites.
func (l *lister) fillCounts(ctx context.Context, rows []row) error {
	b := &selection.Builder{Dialect: &l.store.dialect}
	visible := selection.Within("e", tko.KindDeployment, l.query.Scope.Of(tko.KindDeployment))(b)
	if kind := l.query.Kind; kind != tko.KindTemplate && kind != tko.KindSite {
		return nil
	}
	name := string(l.query.Kind)
	column := "e." + name
	counts := make(map[string]int, len(rows))
	statement := Statement{
		SQL: "SELECT r.i, (SELECT count(*) FROM entity e" + l.store.dialect.ByIndex("entity_by_"+name) +
			" WHERE e.kind = 'deployment' AND " + column + " <> '' AND " + column + " = r.i AND " + visible + ") FROM {rows}",
		Args:    b.Args,
		Columns: []Column{Text.As("i")},
		Rows:    make([][]any, len(rows)),
		Scan: func(from Row) error {
			var id string
			var count int
			err := from.Scan(&id, &count)
			counts[id] = count
			return err
		},
	}
	for i := range rows {
		statement.Rows[i] = []any{rows[i].ID}
	}
	if err := l.lease.run(ctx, statement); err != nil {
		return err
	}
	for i := range rows {
		rows[i].Count = counts[rows[i].ID]
	}
	return nil
}
